"""Overhead of the README's window attention program: Python calls and files touched on a CPU, and
the host time of each attention on a GPU.

`PYTHONPATH=<another checkout>/src python bench/overhead.py` counts another version.
"""

import pathlib
import sys
import time
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

import torch
from measure import issue_us, write

import edgewise
from edgewise import F, Program, R, V, W
from edgewise.graphs import global_tokens, window
from edgewise.kernels.attention import attention

PACKAGE = str(pathlib.Path(edgewise.__file__).parent)
GRAPH = window(256) | global_tokens(2)
HEADS = 16


class Counter:
    """Counts calls of Python functions, the files they are in, and changes from file to file."""

    def __init__(self) -> None:
        self.calls, self.hops, self.last = 0, 0, ""
        self.ours, self.files = 0, set[str]()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        self.calls += 1
        self.hops += file != self.last
        self.last = file
        if file.startswith(PACKAGE):
            self.ours += 1
            self.files.add(file)

    def numbers(self) -> dict[str, int]:
        return {
            "calls": self.calls,
            "edgewise_calls": self.ours,
            "hops": self.hops,
            "edgewise_files": len(self.files),
        }


def counted(run: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    counter = Counter()
    sys.setprofile(counter)
    try:
        found = run()
    finally:
        sys.setprofile(None)
    return found, counter.numbers()


def program() -> Program:
    return Program(
        [
            R.q(V.I) <= R.x(V.I)["q":4, 4],
            R.k(V.I) <= R.x(V.I)["k":4, 4],
            (R.weights(V.I, V.J) <= (R.k(V.J).T, R.q(V.I), GRAPH(V.I, V.J)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.attention(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )


def calls_of_the_program() -> dict[str, dict[str, int]]:
    """Of calls 1 to 5, and of the backward pass of the fifth."""
    model = program().compile(R.attention, seed=0)
    x = torch.randn(2, 4096, 4)
    found = {}
    for number in range(1, 6):
        y, found[f"call {number}"] = counted(lambda: model(x=x))
        _, found[f"backward {number}"] = counted(y.sum().backward)
    return {name: found[name] for name in ("call 1", "call 2", "call 5", "backward 5")}


def calls_of_the_function() -> dict[str, dict[str, int]]:
    q, k, v = (torch.randn(2, 1, 4096, 4, requires_grad=True) for _ in range(3))
    found = {}
    for number in range(1, 6):
        y, found[f"call {number}"] = counted(lambda: attention(q, k, v, GRAPH))
        _, found[f"backward {number}"] = counted(y.sum().backward)
    return {name: found[name] for name in ("call 1", "call 2", "call 5", "backward 5")}


def host_times() -> dict[str, float]:
    """Microseconds of the host for one attention on a GPU: the function, and in a model."""
    shape, kind = (1, HEADS, 4096, 64), torch.bfloat16
    q, k, v = (torch.randn(shape, device="cuda", dtype=kind, requires_grad=True) for _ in range(3))
    model = heads().compile(R.attention, seed=0).to("cuda", kind)
    x = torch.randn(1, 4096, 64, device="cuda", dtype=kind)
    out = {}
    for name, grad in (("", False), (" with gradients", True)):
        with torch.set_grad_enabled(grad):
            out[f"attention(){name}"] = best(lambda: attention(q, k, v, GRAPH))
            out[f"in a compiled model{name}"] = best_inside(lambda: model(x=x))
    return out


def heads() -> Program:
    """The same with heads, which have queries, keys and values of their own."""
    projections = [
        getattr(R, name)(V.H, V.I) <= R.x(V.I)[getattr(W, name)(V.H)[64, 64]] for name in "qkv"
    ]
    weights = R.weights(V.H, V.I, V.J) <= (R.k(V.H, V.J).T, R.q(V.H, V.I), GRAPH(V.I, V.J))
    rules = [
        weights | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.attention(V.H, V.I) <= (R.weights(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
    ]
    return Program([*projections, *rules], domains={V.H: HEADS})


def best(run: Callable[[], object]) -> float:
    for _ in range(10):
        run()
    return min(issue_us(run) for _ in range(20))


def best_inside(run: Callable[[], object]) -> float:
    """The least time that the attention in a call of a model takes, by the clock around it."""
    taken: list[float] = []
    place, name = where_models_attend()
    inner = getattr(place, name)

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        found = inner(*arguments, **options)
        taken.append(time.perf_counter() - start)
        return found

    setattr(place, name, timed)
    try:
        for call in range(200):
            run()
            if call % 10 == 9:
                torch.cuda.synchronize()
    finally:
        setattr(place, name, inner)
    return round(min(taken) * 1e6, 1)


def where_models_attend() -> tuple[Any, str]:
    """A prepared call; before there were any, the function itself."""
    try:
        from edgewise.kernels.attention.prepared import Prepared
    except ImportError:
        return import_module("edgewise.physical.attention_nodes"), "attention"
    return Prepared, "call"


def main() -> None:
    results: dict[str, Any] = {
        "program": calls_of_the_program(),
        "attention()": calls_of_the_function(),
    }
    print(f"{'':<24}{'calls':>10}{'edgewise':>10}{'hops':>10}{'files':>10}")
    for name, found in results.items():
        for call, numbers in found.items():
            print(f"{name:<12}{call:<12}" + "".join(f"{x:>10,}" for x in numbers.values()))
    print("bar: 60 calls of edgewise in call 5 of the program")
    if torch.cuda.is_available():
        results["host_us"] = host_times()
        for name, taken in results["host_us"].items():
            print(f"{name:<36}{taken:>7} µs of the host (bar: 25 in a compiled model)")
    write("overhead", results)


if __name__ == "__main__":
    main()
