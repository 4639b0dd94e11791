"""Recurrent networks as rules beside `torch.nn` of the same sizes: build, forward and backward.

PYTHONPATH=src:bench python3 bench/recurrences.py

One thread, float32, process time; both alternate, the least of several. `build` is compiling rules,
grounding, lowering and the first call: everything before the second call, in a process that has
called such a model before.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from measure import write

from edgewise import F, Program, R, V, W

NEXT = R.special.next(V.S, V.T)


def rnn(d: int) -> list[Any]:
    """h = tanh(W x + b + U h' + c), as `torch.nn.RNN`."""
    now = (R.x(V.T)["u":d, d], W.b[d,], W.c[d,])
    return [
        R.before(0) <= W.first[d,].filled(0.0).fixed(),
        R.before(V.T) <= (R.h(V.S), NEXT),
        (R.h(V.T) <= (*now, R.before(V.T)["w":d, d])) | [F.tanh],
    ]


def gate(name: str, d: int, function: Any) -> Any:
    """σ(W x + b + U h' + c) or tanh of it."""
    back = (R.before(V.T)[W[f"{name}.w"][d, d]], W[f"{name}.c"][d,])
    now = (R.x(V.T)[W[f"{name}.u"][d, d]], W[f"{name}.b"][d,])
    return (R[name](V.T) <= (*now, *back)) | [function]


def gru(d: int) -> list[Any]:
    """As `torch.nn.GRU`, gates as relations of their own."""
    back = R.before(V.T)["n.w":d, d] + W["n.c"][d,]
    new = (R.x(V.T)["n.u":d, d], W["n.b"][d,], R.r(V.T) * back)
    return [
        R.before(0) <= W.first[d,].filled(0.0).fixed(),
        R.before(V.T) <= (R.h(V.S), NEXT),
        gate("z", d, F.sigmoid),
        gate("r", d, F.sigmoid),
        (R.n(V.T) <= new) | [F.tanh],
        R.h(V.T) <= F.reverse(R.z(V.T)) * R.n(V.T) + R.z(V.T) * R.before(V.T),
    ]


def lstm(d: int) -> list[Any]:
    """As `torch.nn.LSTM`."""
    return [
        R.before(0) <= W.first[d,].filled(0.0).fixed(),
        R.before(V.T) <= (R.h(V.S), NEXT),
        R.cell_before(0) <= W.first[d,].filled(0.0).fixed(),
        R.cell_before(V.T) <= (R.cell(V.S), NEXT),
        gate("i", d, F.sigmoid),
        gate("f", d, F.sigmoid),
        gate("g", d, F.tanh),
        gate("o", d, F.sigmoid),
        R.cell(V.T) <= R.f(V.T) * R.cell_before(V.T) + R.i(V.T) * R.g(V.T),
        R.h(V.T) <= R.o(V.T) * F.tanh(R.cell(V.T)),
    ]


RULES: dict[str, Callable[[int], list[Any]]] = {"RNN": rnn, "GRU": gru, "LSTM": lstm}
# the order of gates in the matrices of torch.nn
GATES = {"RNN": [""], "GRU": ["r.", "z.", "n."], "LSTM": ["i.", "f.", "g.", "o."]}


def load(model: torch.nn.Module, peer: torch.nn.Module, kind: str) -> None:
    """Give both the same weights."""
    names = {"u": "weight_ih_l0", "w": "weight_hh_l0", "b": "bias_ih_l0", "c": "bias_hh_l0"}
    with torch.no_grad():
        for mine, theirs in names.items():
            parts = getattr(peer, theirs).chunk(len(GATES[kind]))
            for name, part in zip(GATES[kind], parts, strict=True):
                model.weight(name + mine).copy_(part)


def stepped(call: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """Process time of forward and backward."""

    def run() -> float:
        start = time.process_time()
        call().square().mean().backward()
        return time.process_time() - start

    return run


def case(kind: str, d: int, batch: int, steps: int) -> dict[str, Any]:
    x = torch.randn(batch, steps, d)
    peer = getattr(torch.nn, kind)(d, d, batch_first=True)
    start = time.process_time()
    model = Program(RULES[kind](d)).compile(R.h, seed=0)
    model(x=x)
    build = time.process_time() - start
    load(model, peer, kind)
    torch.testing.assert_close(model(x=x), peer(x)[0], atol=1e-4, rtol=1e-4)
    ours, theirs = stepped(lambda: model(x=x)), stepped(lambda: peer(x)[0])
    repeats = 5 if steps >= 2000 else 30
    both = [(ours(), theirs()) for _ in range(repeats + 2)][2:]
    mine, other = (min(column) for column in zip(*both, strict=True))
    return {
        "model": kind, "size": d, "batch": batch, "steps": steps,
        "build_s": round(build, 3), "ours_ms": round(1e3 * mine, 3),
        "torch_ms": round(1e3 * other, 3), "ours / torch": round(mine / other, 2),
    }  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case("RNN", 4, 1, 3)  # loops are compiled once, and cached on disk
    found = []
    for kind in RULES:
        for d, batch in ((16, 1), (64, 1), (64, 16)):
            for steps in (10, 200, 2000):
                found.append(case(kind, d, batch, steps))
                print(found[-1], flush=True)
    write("recurrences", found)


if __name__ == "__main__":
    main()
