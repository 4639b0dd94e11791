"""Rectangles of attention with scores written out, some rows at a time: on any device."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.kernels.attention import explicit
from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.function import row_dots
from edgewise.kernels.attention.merge import Merged
from edgewise.kernels.attention.shapes import Rectangle
from edgewise.kernels.attention.terms import TermGrads, Tile, numbers


@dataclass(frozen=True)
class Part:
    """Rows top ≤ row < bottom of each of the copies first ≤ t < last of a rectangle, and as many
    keys of each as they hear."""

    whole: Rectangle
    first: int
    last: int
    top: int
    bottom: int

    @property
    def width(self) -> int:
        return self.bottom if self.whole.causal else self.whole.width

    @property
    def rows(self) -> slice:
        start = self.whole.top + self.first * self.whole.height + self.top
        count = (self.last - self.first - 1) * self.whole.height + self.bottom - self.top
        return slice(start, start + count)

    def tile(self, case: Case, terms: Terms, device: torch.device) -> Tile:
        copy = torch.arange(self.first, self.last, device=device)[:, None, None]
        row = torch.arange(self.top, self.bottom, device=device)[None, :, None]
        column = torch.arange(self.width, device=device)[None, None]
        i = self.whole.top + copy * self.whole.height + row
        j = self.whole.left + copy * self.whole.shift + column
        allowed = column <= row if self.whole.causal else None
        edge = None
        if terms.edge_bias is not None or terms.edge_scale is not None:
            edge = numbers(case.graph, case.n, case.m, i, j)
        return Tile(i, j, edge, allowed)

    def queries(self, x: Tensor) -> Tensor:
        """(b, g, n, ...) as (b, g, copies, rows, ...)."""
        x = x[:, :, self.whole.rows].unflatten(2, (self.whole.times, self.whole.height))
        return x[:, :, self.first : self.last, self.top : self.bottom]

    def keys(self, x: Tensor) -> Tensor:
        """(b, m, d) as (b, copies, keys, d): a view."""
        return self.whole.places(x)[:, self.first : self.last, : self.width]


def parts(case: Case, rectangles: tuple[Rectangle, ...]) -> Iterator[Part]:
    for whole in rectangles:
        row = case.b * case.g * whole.width
        if row * whole.height <= explicit.NUMBERS:
            step = max(explicit.NUMBERS // max(row * whole.height, 1), 1)
            for at in range(0, whole.times, step):
                yield Part(whole, at, min(at + step, whole.times), 0, whole.height)
        else:
            step = max(explicit.NUMBERS // row, 1)
            for copy in range(whole.times):
                for top in range(0, whole.height, step):
                    yield Part(whole, copy, copy + 1, top, min(top + step, whole.height))


def forward(
    case: Case,
    rectangles: tuple[Rectangle, ...],
    tensors: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
) -> tuple[Tensor, Tensor]:
    q, k, v = tensors
    merged = Merged((case.b, case.g, case.n), case.dv, q)
    for part in parts(case, rectangles):
        taken = (part.queries(q), part.keys(k), part.keys(v))
        out, lse = explicit.forward(case, terms, taken, part.tile(case, terms, q.device))
        merged.add(out.flatten(2, 3), lse.flatten(2, 3), part.rows)
    return merged.out.to(q.dtype), merged.lse


def backward(case: Case, rectangles: tuple[Rectangle, ...], saved: Saved, dout: Tensor) -> Grads:
    total, kind = TermGrads(case, saved.terms), wide(saved.q.dtype)
    delta = row_dots(dout, saved.out)
    dq, dk, dv = (
        torch.zeros(x.shape, dtype=kind, device=x.device) for x in (saved.q, saved.k, saved.v)
    )
    for part in parts(case, rectangles):
        taken = (part.queries(saved.q), part.keys(saved.k), part.keys(saved.v))
        rows = (part.queries(dout), part.queries(delta), part.queries(saved.lse))
        tile = part.tile(case, saved.terms, dout.device)
        grads = explicit.backward(case, saved.terms, taken, rows, tile, total)
        dq[:, :, part.rows] += grads[0].flatten(2, 3)
        part.keys(dk).add_(grads[1])
        part.keys(dv).add_(grads[2])
    dq, dk, dv = (x.to(saved.q.dtype) for x in (dq, dk, dv))
    return Grads(dq, dk, dv, total.terms())
