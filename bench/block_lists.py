"""Block lists from patterns against FlexAttention's `create_block_mask`: time, memory, growth."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from measure import write

from edgewise.graphs import cache, parse

BLOCK = 128
LONG = 1 << 15
MOST_MEMORY = 20 << 30  # a process that wants more fails instead of taking the machine
PATTERNS = {
    "window": "window(256)",
    "bigbird": "bigbird(64, 3)",
    "documents": f"documents({[4096] * 8})",
}
MILLION = {
    "window": "window(256)",
    "strided": "strided(1024) & causal()",
    "bigbird": "bigbird(64, 3)",
    "documents": f"documents({[4096] * 256})",
}
GROWTH = {"window": "window(256)", "bigbird": "bigbird(64, 3)", "causal": "causal()"}


def fresh(text: str, n: int) -> Callable[[], object]:
    """Blocks from the text of the pattern on, nothing remembered."""

    def run() -> object:
        cache.clear()
        return parse(text).blocks(n, block=BLOCK)

    return run


def mask(text: str, n: int) -> Callable[[], object]:
    def run() -> object:
        cache.clear()
        return parse(text).block_mask(n, block=BLOCK)

    return run


def mask_mod(text: str, n: int) -> Callable[..., torch.Tensor]:
    """The mask as a user of FlexAttention would write it."""
    kind = text.partition("(")[0]
    if kind == "window":
        return lambda b, h, i, j: (i - j).abs() <= 256
    if kind == "documents":
        document = torch.arange(n) // 4096
        return lambda b, h, i, j: document[i] == document[j]
    table = parse(text).blocks(n, block=64).dense() > 0
    return lambda b, h, i, j: table[i // 64, j // 64]


def theirs(text: str, n: int, compiled: bool) -> Callable[[], object]:
    from torch.nn.attention.flex_attention import create_block_mask

    mod = mask_mod(text, n)
    build = torch.compile(create_block_mask) if compiled else create_block_mask
    return lambda: build(mod, None, None, n, n, "cpu", BLOCK)


def seconds(run: Callable[[], object], repeats: int) -> float:
    """The least process time of several runs."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def one(which: str, text: str, n: int) -> None:
    """Measure one way in a process of its own, so that its memory is its own; print JSON."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    small = 1024 if which != "compiled" else n  # a first run: imports, and compilation
    if which == "ours":
        warm, run, repeats = fresh("window(256)", small), fresh(text, n), 5
    elif which == "mask":
        warm, run, repeats = mask("window(256)", small), mask(text, n), 5
    else:
        compiled = which == "compiled"
        short = text if compiled else "window(256)"
        warm, run, repeats = theirs(short, small, compiled), theirs(text, n, compiled), 1
    start = time.process_time()
    warm()
    first = time.process_time() - start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = seconds(run, repeats)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"cpu_s": round(taken, 6), "mb": round(grown / 1024, 2), "first_s": first}))


def measured(which: str, text: str, n: int, limit: int = 400) -> dict[str, object]:
    command = [sys.executable, __file__, which, text, str(n)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"no result after {limit} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return {"failed": said[-1] if said else f"ended with {done.returncode} (out of memory?)"}
    return json.loads(done.stdout.splitlines()[-1])


def against(n: int) -> dict[str, object]:
    out: dict[str, object] = {}
    for name, text in PATTERNS.items():
        row = {which: measured(which, text, n) for which in ("ours", "mask", "eager", "compiled")}
        for which in ("eager", "compiled"):
            if "cpu_s" in row[which]:
                row[f"faster_than_{which}"] = round(row[which]["cpu_s"] / row["ours"]["cpu_s"])
        if "mb" in row["eager"]:
            ratio = row["eager"]["mb"] / max(row["ours"]["mb"], 1.0)  # growth is seen in MB
            row["times_the_memory_eager"] = round(ratio)
        out[name] = row
        print(name, json.dumps(row), flush=True)
    return out


def growth() -> dict[str, object]:
    """Seconds and blocks from 4k to 4M tokens; for causal, whose blocks grow as n², to 128k."""
    out: dict[str, object] = {}
    for name, text in GROWTH.items():
        last = 22 if name != "causal" else 17
        rows = []
        for power in range(12, last + 1, 2 if name != "causal" else 1):
            n = 1 << power
            taken = seconds(fresh(text, n), 3)
            rows.append({"n": n, "blocks": parse(text).blocks(n).count, "cpu_s": round(taken, 5)})
        out[name] = rows
        print(name, rows, flush=True)
    return out


def main() -> None:
    results = {"block": BLOCK, "tokens": LONG, "against_create_block_mask": against(LONG)}
    results["a_million_tokens_cpu_s"] = {
        name: round(seconds(fresh(text, 1 << 20), 5), 4) for name, text in MILLION.items()
    }
    print(results["a_million_tokens_cpu_s"], flush=True)
    results["growth"] = growth()
    write("block_lists", results)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
