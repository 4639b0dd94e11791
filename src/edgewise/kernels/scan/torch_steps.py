"""A loop over levels by functions of torch: for levels that are worth a call each, and without
numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.scan.program import (
    ADD,
    AFFINE,
    EXP,
    GATHER,
    LINEAR,
    MULTIPLY,
    RELU,
    SCATTER,
    SIGMOID,
    SQUARE,
    TANH,
    Scan,
)

aten = torch.ops.aten
UNARY = {TANH: torch.tanh, SIGMOID: torch.sigmoid, RELU: None, EXP: torch.exp, SQUARE: torch.square}


class _Pieces:
    """The stretches of rows that a schedule reads, of one workspace."""

    def __init__(self, scan: Scan, work: Tensor) -> None:
        self.views = [slot.view(work) for slot in scan.slots]
        self.slots: list[dict[int, Tensor]] = [{} for _ in scan.slots]
        for j, instruction in enumerate(scan.instructions):
            mine = scan.which == j
            starts, ends = scan.first[mine], scan.last[mine]
            used = [] if instruction.op == GATHER else [instruction.a]
            used += [] if instruction.op == SCATTER else [instruction.out]
            used += [instruction.b] if instruction.b >= 0 else []
            for at in used:
                if not self.slots[at] and len(starts):
                    self.slots[at] = _split(self.views[at], starts, ends)


def _split(view: Tensor, starts: np.ndarray, ends: np.ndarray) -> dict[int, Tensor]:
    """Stretches that follow one another, by where they begin."""
    parts = view[int(starts[0]) : int(ends[-1])].split((ends - starts).tolist())
    return dict(zip(starts.tolist(), parts, strict=True))


def _schedule(scan: Scan) -> list[tuple[int, int, int]]:
    return list(zip(scan.which.tolist(), scan.first.tolist(), scan.last.tolist(), strict=True))


def forward(scan: Scan, work: Tensor, matrices: Sequence[Tensor]) -> None:
    pieces = _Pieces(scan, work)
    views, slots, indices = pieces.views, pieces.slots, scan.indices
    turned = [matrix.t() for matrix in matrices]
    for j, lo, hi in _schedule(scan):
        x = scan.instructions[j]
        op = x.op
        if op == LINEAR:
            slots[x.out][lo].addmm_(slots[x.a][lo], turned[x.weight])
        elif op == MULTIPLY:
            torch.mul(slots[x.a][lo], slots[x.b][lo], out=slots[x.out][lo])
        elif op == ADD:
            slots[x.out][lo].add_(slots[x.a][lo])
        elif op == GATHER:
            torch.index_select(views[x.a], 0, indices[x.index][lo:hi], out=slots[x.out][lo])
        elif op == SCATTER:
            views[x.out].index_add_(0, indices[x.index][lo:hi], slots[x.a][lo])
        elif op == AFFINE:
            torch.mul(slots[x.a][lo], x.alpha, out=slots[x.out][lo])
            if x.beta:
                slots[x.out][lo].add_(x.beta)
        elif op == RELU:
            torch.clamp(slots[x.a][lo], min=0, out=slots[x.out][lo])
        else:
            UNARY[op](slots[x.a][lo], out=slots[x.out][lo])  # type: ignore[misc]


def backward(scan: Scan, work: Tensor, grads: Tensor, matrices: Sequence[Tensor]) -> None:
    """Gradients of all slots: `grads` has those of results, and zeros."""
    values, slopes = _Pieces(scan, work), _Pieces(scan, grads)
    y, g, indices = values.slots, slopes.slots, scan.indices
    alone = [scan.readers[x.a] == 1 for x in scan.instructions]
    for j, lo, hi in reversed(_schedule(scan)):
        x = scan.instructions[j]
        op = x.op
        if op == LINEAR:
            g[x.a][lo].addmm_(g[x.out][lo], matrices[x.weight])
        elif op == MULTIPLY:
            _product(g[x.a][lo], g[x.out][lo], y[x.b][lo])
            _product(g[x.b][lo], g[x.out][lo], y[x.a][lo])
        elif op == ADD:
            _into(g[x.a][lo], g[x.out][lo])
        elif op == GATHER:
            slopes.views[x.a].index_add_(0, indices[x.index][lo:hi], g[x.out][lo])
        elif op == SCATTER:
            g[x.a][lo].add_(slopes.views[x.out].index_select(0, indices[x.index][lo:hi]))
        elif op == TANH and alone[j]:
            aten.tanh_backward.grad_input(g[x.out][lo], y[x.out][lo], grad_input=g[x.a][lo])
        elif op == SIGMOID and alone[j]:
            aten.sigmoid_backward.grad_input(g[x.out][lo], y[x.out][lo], grad_input=g[x.a][lo])
        else:
            _slope(op, x.alpha, g[x.a][lo], g[x.out][lo], y[x.a][lo], y[x.out][lo])


def _slope(op: int, alpha: float, into: Tensor, grad: Tensor, x: Tensor, y: Tensor) -> None:
    if op == AFFINE:
        into.add_(grad, alpha=alpha)
    elif op == TANH:
        into.add_(aten.tanh_backward(grad, y))
    elif op == SIGMOID:
        into.add_(aten.sigmoid_backward(grad, y))
    elif op == RELU:
        into.add_(aten.threshold_backward(grad, y, 0))
    elif op == EXP:
        into.addcmul_(grad, y)
    else:
        assert op == SQUARE
        into.addcmul_(grad, x, value=2)


def _product(into: Tensor, grad: Tensor, other: Tensor) -> None:
    if into.shape[1] == grad.shape[1]:
        into.addcmul_(grad, other)
    else:  # a number in each row
        into.add_((grad * other).sum(1, keepdim=True))


def _into(into: Tensor, grad: Tensor) -> None:
    into.add_(grad if into.shape == grad.shape else grad.sum(1, keepdim=True))
