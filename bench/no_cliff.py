"""No cliff: 200 different lengths and patterns in a row, forward and backward, on either device.

PYTHONPATH=src:bench python3 bench/no_cliff.py [cpu] [cuda]

Every case is new. Its first call may take 3 times its second and 5 ms; memory stays flat.
"""

import gc
import json
import os
import random
import sys
import time

import torch
from measure import RESULTS, commit, machine, write

from edgewise.graphs import (
    bigbird,
    causal,
    dilated,
    documents,
    global_tokens,
    random_edges,
    strided,
    window,
)
from edgewise.kernels.attention import attention
from edgewise.scores import alibi, relative, softcap

COUNT, HEADS, D = 200, 2, 32


def cases(longest: int):
    """(name, graph, length, options): the same on every run."""
    draw = random.Random(0)
    for number in range(COUNT):
        n = draw.randrange(longest // 8, longest)
        r = draw.randrange(8, 200)
        graphs = {
            "window": window(r),
            "causal window": causal() & window(r),
            "window and globals": window(r) | global_tokens(1 + r % 3),
            "strided": strided(2 + r % 30) & causal(),
            "dilated": dilated(r % 40 + 2, 2 + r % 3),
            "bigbird": bigbird(32, seed=number),
            "documents": documents([n // 3, n - n // 3]) & causal(),
            "edges": random_edges(1 + r % 8, seed=number),
            "window and edges": window(r) | random_edges(2, seed=number),
        }
        name = list(graphs)[number % len(graphs)]
        options = [{}, {"score": softcap(20.0)}, {"bias": alibi(HEADS)}, {"bias": "relative"}]
        yield name, graphs[name], n, options[(number // len(graphs)) % len(options)]


def held(device: str) -> int:
    """Bytes in use after a call."""
    gc.collect()
    if device == "cuda":
        return torch.cuda.memory_allocated()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds(device: str, graph, n: int, options) -> float:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shape = (1, HEADS, n, D)
    q, k, v = (torch.randn(shape, device=device, dtype=dtype).requires_grad_() for _ in range(3))
    options = dict(options)
    if options.get("bias") == "relative":
        options["bias"] = relative(torch.randn(HEADS, 65, device=device, requires_grad=True))
    elif "bias" in options and device == "cuda":
        slopes = options["bias"].tables[0].to(device).flatten()
        options["bias"] = alibi(slopes)
    if device == "cuda":
        torch.cuda.synchronize()
    # Process time is what a busy machine disturbs least.
    clock = time.perf_counter if device == "cuda" else time.process_time
    start = clock()
    attention(q, k, v, graph, **options).sum().backward()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def run(device: str) -> dict:
    longest = 16384 if device == "cuda" else 1024
    rows, memory = [], []
    for name, graph, n, options in cases(longest):
        first, second = (seconds(device, graph, n, options) for _ in range(2))
        memory.append(held(device))
        allowed = 3 * second + 0.005
        rows.append({"graph": name, "n": n, "terms": "".join(map(str, options)),
                     "first_ms": round(1e3 * first, 2), "second_ms": round(1e3 * second, 2),
                     "over": round(first / allowed, 2)})  # fmt: skip
    # Numba and Triton compile each kernel once in a process, and keep it on disk.
    settled = rows[COUNT // 4 :]
    worst = sorted(settled, key=lambda row: -row["over"])[:5]
    out = {
        "device": device,
        "cases": COUNT,
        "settled": len(settled),
        "within": sum(row["over"] <= 1 for row in settled),
        "mib_after_a_quarter": round(memory[COUNT // 4] / 2**20),
        "mib_at_the_end": round(memory[-1] / 2**20),
        "mib_at_most": round(max(memory) / 2**20),
        "worst": worst,
    }
    print(out, flush=True)
    return {**out, "rows": rows}


def main() -> None:
    here = [d for d in ("cpu", "cuda") if d == "cpu" or torch.cuda.is_available()]
    asked = [d for d in sys.argv[1:] if d in here] or here
    file = RESULTS / "no_cliff.json"
    known = json.loads(file.read_text())["results"] if file.exists() else []
    rows = {row["device"]: row for row in known}
    for device in asked:
        rows[device] = run(device) | {"machine": machine(), "commit": commit()}
    write("no_cliff", [rows[device] for device in sorted(rows)])


if __name__ == "__main__":
    main()
