"""Overhead of the README's window attention program: Python calls and files touched on a CPU, and
the host time of each attention of a model on a GPU.

`PYTHONPATH=<another checkout>/src python bench/overhead.py` counts another version.
"""

import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

import torch
from measure import write
from torch.nn import functional

import edgewise
from edgewise import F, Program, R, V, W
from edgewise.graphs import causal, from_edges, global_tokens, window
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.flash import fused
from edgewise.scores import S

PACKAGE = str(pathlib.Path(edgewise.__file__).parent)
GRAPH = window(256) | global_tokens(2)
HEADS = 16
TIMES = 400


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
    model = program().compile(R.attention, seed=0)
    x = torch.randn(2, 4096, 4)
    return calls_of(lambda: model(x=x))


def calls_without_numba() -> dict[str, dict[str, int]]:
    """Of the program where the package is not installed."""
    from edgewise.graphs import cache
    from edgewise.kernels import kernel_choices

    installed = kernel_choices._installed
    kernel_choices._installed = lambda package: package != "numba" and installed(package)
    cache.clear()
    try:
        return calls_of_the_program()
    finally:
        kernel_choices._installed = installed
        cache.clear()


def calls_of_the_function() -> dict[str, dict[str, int]]:
    q, k, v = (torch.randn(2, 1, 4096, 4, requires_grad=True) for _ in range(3))
    return calls_of(lambda: attention(q, k, v, GRAPH))


def calls_of(run: Callable[[], torch.Tensor]) -> dict[str, dict[str, int]]:
    """Of calls 1 to 5, and of the backward pass of the fifth."""
    found = {}
    for number in range(1, 6):
        y, found[f"call {number}"] = counted(run)
        _, found[f"backward {number}"] = counted(y.sum().backward)
    return {name: found[name] for name in ("call 1", "call 2", "call 5", "backward 5")}


def host_times() -> dict[str, dict[str, float]]:
    """Microseconds of the host for one attention on a GPU, least and median."""
    places = torch.arange(4096)
    far = torch.randint(4096, (8 * 4096,), generator=torch.Generator().manual_seed(0))
    edges = from_edges(torch.stack([places.repeat(9), torch.cat([places, far])]))
    graphs = {"window": window(256), "window and global": GRAPH, "edges": edges, "causal": causal()}
    return {
        f"{name}: {what}": found
        for name, graph in graphs.items()
        for what, found in host_times_of(graph).items()
    }


def host_times_of(graph: Pattern) -> dict[str, dict[str, float]]:
    """In a model, as the function, its backward pass, and as the operator of `torch.compile`."""
    shape, kind = (1, HEADS, 4096, 64), torch.bfloat16
    q, k, v = (torch.randn(shape, device="cuda", dtype=kind, requires_grad=True) for _ in range(3))
    x, g = torch.randn(1, 4096, 64, device="cuda", dtype=kind), torch.randn_like(q)
    model = heads(graph).compile(R.attention, seed=0).to("cuda", kind)

    def in_a_model() -> dict[str, float]:
        if graph == causal():  # torch's own attention, which the model calls
            return clocked(lambda: fused(q, k, v, 1.0, causal=True))
        return inside(lambda: model(x=x))

    out = {}
    with torch.no_grad():
        out["in a model"] = in_a_model()
        out["attention()"] = clocked(lambda: attention(q, k, v, graph))
        out["operator"] = clocked(operator_of(q, k, v, graph))
        if graph == causal():
            sdpa = functional.scaled_dot_product_attention
            out["torch alone"] = clocked(lambda: sdpa(q, k, v, is_causal=True))
    out["in a model, training"] = in_a_model()
    out["backward"] = clocked(
        lambda y: torch.autograd.grad(y, (q, k, v), g), lambda: (attention(q, k, v, graph),)
    )
    return out


def operator_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, graph: Pattern
) -> Callable[[], Any]:
    """What a model under `torch.compile` calls, without what is compiled around it."""
    names = import_module("edgewise.kernels.attention.calls.trace_names")
    shape = (-1, 1, *q.shape[2:]), (-1, *k.shape[2:]), (-1, *v.shape[2:])
    tensors = [x.reshape(size) for x, size in zip((q, k, v), shape, strict=True)]
    options = (names.name_of(graph), names.name_of(S.node), 0.125, 0, 0.0, None, False)
    return lambda: torch.ops.edgewise.attend(*tensors, *[None] * 5, [], None, *options)


def heads(graph: Pattern) -> Program:
    """The same with heads, which have queries, keys and values of their own."""
    projections = [
        getattr(R, name)(V.H, V.I) <= R.x(V.I)[getattr(W, name)(V.H)[64, 64]] for name in "qkv"
    ]
    weights = R.weights(V.H, V.I, V.J) <= (R.k(V.H, V.J).T, R.q(V.H, V.I), graph(V.I, V.J))
    rules = [
        weights | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.attention(V.H, V.I) <= (R.weights(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
    ]
    return Program([*projections, *rules], domains={V.H: HEADS})


def clocked(run: Callable[..., object], before: Callable[[], Any] = tuple) -> dict[str, float]:
    """By the clock around each call, on what is made before it; the device is let finish from time
    to time."""
    taken: list[float] = []
    for call in range(TIMES):
        made = before()
        start = time.perf_counter()
        run(*made)
        taken.append(time.perf_counter() - start)
        if call % 10 == 9:
            torch.cuda.synchronize()
    return summary(taken)


def inside(run: Callable[[], object]) -> dict[str, float]:
    """The time of the attention in a call of a model, by the clock around it."""
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
        clocked(run)
    finally:
        setattr(place, name, inner)
    return summary(taken)


def summary(taken: list[float]) -> dict[str, float]:
    late = taken[len(taken) // 4 :]  # after kernels are compiled and memory is had
    return {
        "least_us": round(min(late) * 1e6, 1),
        "median_us": round(statistics.median(late) * 1e6, 1),
    }


def where_models_attend() -> tuple[Any, str]:
    """A prepared call; before there were any, the function itself."""
    try:
        from edgewise.kernels.attention.calls.prepared import Prepared
    except ImportError:
        return import_module("edgewise.physical.attention.nodes"), "attention"
    return Prepared, "call"


def main() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # others take calls of their own
    results: dict[str, Any] = {
        "program": calls_of_the_program(),
        "without numba": calls_without_numba(),
        "attention()": calls_of_the_function(),
    }
    print(f"{'':<26}{'calls':>10}{'edgewise':>10}{'hops':>10}{'files':>10}")
    for name, found in results.items():
        for call, numbers in found.items():
            print(f"{name:<14}{call:<12}" + "".join(f"{x:>10,}" for x in numbers.values()))
    print("bar: 60 calls in call 5 of the program")
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        results["host_us"] = host_times()
        for name, taken in results["host_us"].items():
            print(f"{name:<40}{taken['least_us']:>8}{taken['median_us']:>8} µs of the host")
        results["target_us"] = 25
        print("bar: 25 in a model")
    write("overhead", results)


if __name__ == "__main__":
    main()
