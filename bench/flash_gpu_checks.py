"""FlashAttention 4 as a kernel: right in all that it takes, and its time beside our own kernels.

PYTHONPATH=src:bench:SITE python3 bench/flash_gpu_checks.py [--workers 8] [--seconds 140] [word ...]

SITE has the packages of the extra `flash`. Workers check a share of the cases each, against float64
at small sizes, since every variant is compiled for seconds; then this process times the cells that
the costs of the kernel were fitted to, as long as the seconds last. Cases and cells whose name has
all the words are run. A case is wrong if it is further from float64 than twice the plain reference
in its own precision, and some rounding.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")  # before it is imported
os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR", tempfile.gettempdir() + "/flash4")

import torch
from grid_cells import BF16, F16, Cell
from grid_gpu import Run
from measure import commit, gpu_ms, issue_us, skip, write
from torch import Tensor

from edgewise import F, Program, R, V
from edgewise.graphs import Pattern, causal, full, window
from edgewise.kernels.attention import attention, flash4, prepare
from edgewise.scores import Score, softcap

DEVICE = "cuda"
NAME = "flash4"
WIDE = {"d": 128, "heads": 32, "keys": 8}
PAST = window(99) & causal()


@dataclass(frozen=True)
class Case:
    """A call at a small size."""

    name: str
    graph: Pattern
    n: int = 1000
    m: int | None = None
    d: int = 64
    dv: int | None = None
    dtype: torch.dtype = BF16
    heads: int = 4
    keys: int = 4
    batch: int = 2
    offset: int = 0
    score: Score | None = None
    scale: float | None = None
    tokens_first: bool = False
    deterministic: bool = False

    def tensors(self) -> list[Tensor]:
        torch.manual_seed(0)
        keys = (self.batch, self.keys, self.m or self.n)
        shapes = [(self.batch, self.heads, self.n, self.d), (*keys, self.d)]
        made = [torch.randn(x, device=DEVICE) for x in (*shapes, (*keys, self.dv or self.d))]
        if self.tokens_first:
            made = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in made]
        return [x.to(self.dtype) for x in made]

    def call(self, tensors: list[Tensor], kernel: str, **more: Any) -> Any:
        options = {"offset": self.offset, "score": self.score, "scale": self.scale}
        return attention(*tensors, self.graph, kernel=kernel, **options, **more)


def cases() -> list[Case]:
    """By variant: what is compiled once stands together. What may wait for itself is last."""
    cap = {"score": softcap(20.0)}
    later = {"n": 333, "m": 1000, "offset": 667}
    found = [
        Case("causal", causal()),
        Case("causal, 333", causal(), n=333),
        Case("causal, tokens first", causal(), tokens_first=True),
        Case("causal, scaled", causal(), scale=0.3),
        Case("causal, one sample, one head", causal(), batch=1, heads=1, keys=1),
        Case("causal, after 667 tokens", causal(), **later),
        Case("causal, 129", causal(), n=129),
        Case("full", full()),
        Case("full, 333 to 1,000", full(), n=333, m=1000),
        Case("full, 1,000 to 333", full(), m=333),
        Case("window", window(100)),
        Case("window, tokens first", window(100), tokens_first=True),
        Case("window, 333", window(7), n=333),
        Case("causal window", PAST),
        Case("causal window, after 667 tokens", PAST, **later),
        Case("window, shifted", window(40).shift(0, -30), n=333),
        Case("window, 1,000 to 990", window(40), m=990),
        Case("causal, 1,000 to 333", causal(), m=333),
        Case("one query", full(), n=1, m=1000),
        Case("one", full(), n=1),
        Case("full, 17", full(), n=17),
        Case("causal, 17", causal(), n=17),
        Case("causal, last 17", causal(), n=17, m=1000, offset=983),
        Case("window, 17", window(3), n=17),
    ]
    for d in (32, 96, 128, 192, 256):
        found += [
            Case(f"causal, d {d}", causal(), d=d),
            Case(f"causal, 333, d {d}", causal(), n=333, d=d),
            Case(f"window, d {d}", window(60), d=d),
            Case(f"causal window, d {d}, 333", PAST, n=333, d=d),
        ]
    found += [Case(f"full, d {d}", full(), n=333, d=d) for d in (128, 256)]
    for d in (64, 128):
        found += [
            Case(f"causal, float16, d {d}", causal(), d=d, dtype=F16),
            Case(f"window, float16, d {d}", window(60), n=333, d=d, dtype=F16),
        ]
    shared = {"heads": 8, "keys": 2}
    found += [
        Case("causal, 8 on 2", causal(), **shared),
        Case("causal, 8 on 2, after 667 tokens", causal(), **later, **shared),
        Case("causal, 8 on 2, tokens first", causal(), tokens_first=True, **shared),
        Case("window, 8 on 2", window(60), n=333, **shared),
        Case("full, 8 on 2", full(), n=333, **shared),
        Case("causal, 8 on 2, d 128", causal(), d=128, **shared),
        Case("causal window, 8 on 2, d 128", PAST, d=128, **shared),
        Case("causal, 6 on 1", causal(), n=333, heads=6, keys=1),
        Case("causal, softcap", causal(), **cap),
        Case("window, softcap, d 128", window(60), d=128, **cap),
        Case("causal, d 192, values 128", causal(), d=192, dv=128),
        Case("causal, again the same", causal(), deterministic=True),
        Case("causal, 8 on 2, again the same", causal(), deterministic=True, **shared),
        Case("window, again the same", window(60), deterministic=True),
    ]
    assert len({case.name for case in found}) == len(found)
    return found


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    torch.use_deterministic_algorithms(wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def results(case: Case, tensors: list[Tensor], kernel: str) -> dict[str, Tensor]:
    """Without the log-sum-exp, by the second of two calls, and with it and its gradient."""
    tensors = [x.detach().requires_grad_() for x in tensors]
    torch.manual_seed(1)
    shape = (*tensors[0].shape[:-1], tensors[2].shape[-1])
    weight = torch.randn(shape, device=DEVICE, dtype=torch.float64)
    also = torch.randn(shape[:-1], device=DEVICE, dtype=torch.float64)
    for _ in range(1 + (kernel == NAME)):
        out = case.call(tensors, kernel)
        plain = [out, *torch.autograd.grad((out * weight.to(out.dtype)).sum(), tensors)]
    out, lse = case.call(tensors, kernel, return_lse=True)
    total = (out * weight.to(out.dtype)).sum() + (lse * also.to(lse.dtype)).sum()
    both = [out, lse, *torch.autograd.grad(total, tensors)]
    names = (
        "out",
        "dq",
        "dk",
        "dv",
        "out with lse",
        "lse",
        "dq with lse",
        "dk with lse",
        "dv with lse",
    )
    found = zip(names, [*plain, *both], strict=True)
    return {name: x.detach().double() for name, x in found}


def checked(case: Case) -> dict[str, Any]:
    tensors = case.tensors()
    exact = results(case, [x.double() for x in tensors], "reference")
    simple = results(case, tensors, "reference")
    start = time.perf_counter()
    with determinism(case.deterministic):
        own = results(case, tensors, NAME)
        if case.deterministic:
            again = results(case, tensors, NAME)
            if not all(torch.equal(own[name], again[name]) for name in own):
                raise AssertionError("two calls differ")
    took = time.perf_counter() - start
    errors = {}
    for name, right in exact.items():
        allowed = 2 * (simple[name] - right).abs().max()
        allowed = allowed + 2 * torch.finfo(case.dtype).eps * (1 + right.abs().max())
        errors[name] = float(((own[name] - right).abs().max() / allowed).nan_to_num(nan=1e9))
    worst = max(errors, key=lambda name: errors[name])
    return {"error": round(errors[worst], 3), "in": worst, "seconds": round(took, 1)}


def compiled_function(backend: str) -> dict[str, Any]:
    """Through the operator of traces."""
    tensors = [x.requires_grad_() for x in Case("", causal()).tensors()]

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, causal(), kernel=NAME).sin()

    out, same = layer(*tensors), torch.compile(layer, backend=backend)(*tensors)
    grads = [torch.autograd.grad(x.float().square().sum(), tensors) for x in (out, same)]
    pairs = zip((out, *grads[0]), (same, *grads[1]), strict=True)
    differences = [(a - b).detach().abs().max() / (1 + a.detach().abs().max()) for a, b in pairs]
    error = float(max(differences))
    return {"error": error / 0.02, "in": backend}


def compiled_model() -> dict[str, Any]:
    """A model of rules, where it is chosen by itself: alone and under torch.compile."""
    program = Program([
        *(R[name](V.I) <= R.x(V.I)[64, 64] for name in "qkv"),
        (R.w(V.I, V.J) <= (R.k(V.J).T, R.q(V.I), window(60)(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product],
    ])  # fmt: skip
    model = program.compile(R.out, seed=0).to(DEVICE)
    x = torch.randn(1000, 64, device=DEVICE)
    right = model(x=x)
    model, x = model.to(BF16), x.to(BF16)
    before, flash4.cost = flash4.cost, lambda case: 0.0
    try:
        found = [model(x=x), torch.compile(model)(x=x)]
    finally:
        flash4.cost = before
    kernels = str(model.explain(x=x, stage="kernels"))
    worst = max(float((out.float() - right).abs().max()) for out in found)
    return {"error": worst * 10, "in": NAME if f"({NAME})" in kernels else "another kernel"}


def jobs() -> dict[str, Callable[[], dict[str, Any]]]:
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for case in cases():
        found[case.name] = lambda case=case: checked(case)
    extra = {
        "torch.compile, aot_eager": lambda: compiled_function("aot_eager"),
        "torch.compile, inductor": lambda: compiled_function("inductor"),
        "a model of rules": compiled_model,
    }
    last = [name for name in found if name.endswith("again the same")]
    found = (
        {name: found[name] for name in found if name not in last}
        | extra
        | {name: found[name] for name in last}
    )
    return found


def cells() -> list[Cell]:
    few = {"heads": 8, "keys": 8}
    return [
        *(Cell("causal", 16384), Cell("full", 16384), Cell("causal", 8192, **WIDE)),
        *(Cell("window ±256", 16384, d=d) for d in (32, 64, 96, 128, 256)),
        Cell("window ±256", 16384, d=128, dtype=F16),
        *(Cell("causal window 256", 65536), Cell("causal window 4,096", 32768, **WIDE)),
        *(Cell("causal window 1,024", 8192, d=d, **few) for d in (192, 256)),
        *(Cell("causal", 16384, d=d, **few) for d in (96, 256)),
        *(Cell("causal", n, batch=8) for n in (4096, 2048, 1000)),
        *(Cell("causal", 333, batch=64), Cell("full", 333, batch=64)),
        Cell("softcap", 16384, d=128),
        *(Cell("causal window 1,024", 16384), Cell("causal window 4,096", 65536)),
        *(Cell("causal", 16384, d=32), Cell("causal", 4096)),
    ]


def share(items: list[Any], part: str) -> list[Any]:
    """Neighbours stay together: they are one variant."""
    at, parts = map(int, part.split("/"))
    size = -(-len(items) // parts)
    return items[(at - 1) * size : at * size]


def work(part: str, words: list[str]) -> None:
    """A worker: one line for each case, then its share of the cells is compiled."""
    names = chosen(list(jobs()), words)
    for name in share(names, part):
        try:
            row = jobs()[name]()
        except Exception as fault:
            row = {"failed": f"{type(fault).__name__}: {fault}"[:300]}
        print(json.dumps({"case": name, **row}), flush=True)
    for cell in share(chosen_cells(words), part):
        try:
            run = Run(cell, DEVICE)
            for call in (lambda run=run: run.ours(kernel=NAME), run.peer("fa4")):
                if call is not None:
                    out = call()
                    torch.autograd.grad(out, run.tensors, out)
                    with torch.no_grad():
                        call()
        except Exception as fault:
            print(json.dumps({"cell": cell.name, "failed": f"{fault}"[:300]}), flush=True)


def chosen(names: list[str], words: list[str]) -> list[str]:
    return [name for name in names if all(word in name for word in words)]


def chosen_cells(words: list[str]) -> list[Cell]:
    return [cell for cell in cells() if all(word in cell.name for word in words)]


def timed(cell: Cell) -> dict[str, Any]:
    """Milliseconds forward and both ways, and microseconds of the host for each."""
    run = Run(cell, DEVICE)
    other = "dense" if cell.pattern in ("causal", "full") else "triton_blocks"
    metas = [torch.empty_like(x, device="meta") for x in run.tensors]
    row: dict[str, Any] = {"cell": cell.name}
    row["chosen"] = prepare(*metas, run.work.graph, device="cuda", **run.options).choice.name
    calls = {other: lambda: run.ours(kernel=other), NAME: lambda: run.ours(kernel=NAME)}
    for name, call in (calls | {"fa4": run.peer("fa4")}).items():
        if call is None:
            continue
        try:
            weight = torch.randn_like(call())

            def train(call: Callable[[], Tensor] = call, weight: Tensor = weight) -> None:
                torch.autograd.grad(call(), run.tensors, weight)

            with torch.no_grad():
                row[name] = [gpu_ms(call, 0.1), 0.0, issue_us(call, 8), 0.0]
            row[name][1::2] = gpu_ms(train, 0.1), issue_us(train, 8)
        except Exception as fault:
            row[f"{name}_failed"] = f"{type(fault).__name__}: {fault}"[:200]
    if other in row and NAME in row:
        row["times"] = [round(row[other][at] / row[NAME][at], 2) for at in (0, 1)]
    return row


def shown(row: dict[str, Any]) -> str:
    texts = [f"{row['cell']:<52} {row['chosen']:<13}"]
    for name in row:
        if name not in ("cell", "chosen", "times"):
            numbers = row[name]
            if isinstance(numbers, list):
                numbers = "{:.3g} / {:.3g} ms, {:.0f} / {:.0f} µs".format(*numbers)
            texts.append(f"{name} {numbers}")
    return " | ".join([*texts, f"times {row.get('times')}"])


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--part")
    return parser.parse_args()


def main() -> None:
    given, start = options(), time.time()
    if not torch.cuda.is_available():
        skip("there is no CUDA GPU here")
    if given.part:
        work(given.part, given.words)
        return
    rows = from_workers(given)
    wrong = [row for row in rows if not row.get("error", 9e9) <= 1]
    for row in rows:
        print("WRONG" if row in wrong else "right", json.dumps(row)[1:-1], flush=True)
    expected = chosen(list(jobs()), given.words)
    missing = set(expected) - {row.get("case") for row in rows}
    print(
        f"{len(expected)} cases: {len(wrong)} wrong, {len(missing)} did not end {sorted(missing)}"
    )
    print(f"{time.time() - start:.0f} s; forward / both ways", flush=True)
    times = []
    for cell in chosen_cells(given.words):
        if time.time() - start > given.seconds:
            print(f"no time for {cell.name}")
            continue
        try:
            times.append(timed(cell))
            print(shown(times[-1]), flush=True)
        except Exception as fault:
            print(f"{cell.name}: {type(fault).__name__}: {fault}"[:300], flush=True)
        torch.cuda.empty_cache()
    write("flash_gpu_checks", {"commit": commit(), "cases": rows, "times": times})
    if wrong or missing:
        raise SystemExit("cases are wrong: see above")


def from_workers(given: argparse.Namespace) -> list[dict[str, Any]]:
    """What all workers found; one that does not end is ended."""
    limit, running, rows = time.time() + 0.65 * given.seconds, [], []
    with ExitStack() as files:
        for at in range(given.workers):
            output = files.enter_context(tempfile.TemporaryFile("w+"))
            part = f"{at + 1}/{given.workers}"
            command = [sys.executable, __file__, "--part", part, *given.words]
            running.append((output, subprocess.Popen(command, stdout=output)))
        for output, process in running:
            try:
                process.wait(max(limit - time.time(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            output.seek(0)
            rows += [json.loads(line) for line in output if line.startswith("{") and "}" in line]
    return rows


if __name__ == "__main__":
    main()
