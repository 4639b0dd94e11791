"""Trees, documents, prefixes: graphs that are a small number of rectangles and triangles.

Each is one call of PyTorch's fused attention, like ones together; a row that lies in several is
merged by log-sum-exp. Scores with terms are materialised, some rows at a time, on any device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import residue_groups
from edgewise.kernels.attention import materialised
from edgewise.kernels.attention.autograd import row_dots
from edgewise.kernels.attention.contract import (
    PAIR_TERMS,
    Case,
    Grads,
    Saved,
    Terms,
    cached_by_case,
    wide,
)
from edgewise.kernels.attention.flash import flash, flash_backward
from edgewise.kernels.attention.terms import TermGrads, Tile, numbers
from edgewise.layouts.ragged import Ints

MOST = 128
name = "rectangles"
START = {"cpu": 2e4, "cuda": 5e7}  # the cost of one call in pairs


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    halves = (torch.float16, torch.bfloat16)
    if case.device == "cuda" and case.dtype not in halves and not case.written_out:
        return "on a GPU it computes in float16 and bfloat16 only"
    found = rectangles(case.graph, case.n, case.m)
    if found is None:
        return f"the graph is not made of at most {MOST} rectangles and triangles"
    return case.lacks(*PAIR_TERMS)


def least(case: Case) -> float:
    """What it costs at least on a GPU, where every call takes long."""
    return 0.0 if case.device == "cpu" else START[case.device] + case.work


def cost(case: Case) -> float:
    found = rectangles(case.graph, case.n, case.m) or ()
    rows = sum(r.times * r.height for r in found)
    slow = materialised.PAIR[case.device] if case.written_out else 1.05
    work = case.b * case.g * (slow * sum(r.area for r in found) + 64 * rows)
    return work + START[case.device] * len(found)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    found = _rectangles(case)
    if case.written_out:
        return _materialised(case, found, (q, k, v), terms)
    merged = materialised.Merged(case.n)
    for r in found:
        queries, keys, values = _taken(r, case.g, q, k, v)
        out, lse = flash(queries, keys, values, case.scale, causal=r.causal, mask=None)
        if r.times > 1:
            out, lse = _returned(out, case, r), _returned(lse[..., None], case, r)[..., 0]
        merged.add(out, lse, r.rows)
    return merged.out.to(q.dtype), merged.lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    found = _rectangles(case)
    if case.written_out:
        return _materialised_backward(case, found, saved, dout)
    kind = wide(saved.q.dtype)
    dq = torch.zeros(saved.q.shape, dtype=kind, device=dout.device)
    dk, dv = (torch.zeros(x.shape, dtype=kind, device=x.device) for x in (saved.k, saved.v))
    for r in found:
        q, k, v = _taken(r, case.g, saved.q, saved.k, saved.v)
        out, lse, g = (_queries(x, r) for x in (saved.out, saved.lse[..., None], dout))
        state = (q, k, v, out, lse[..., 0])
        parts = flash_backward(g, state, case.scale, causal=r.causal, mask=None)
        dq[:, :, r.rows] += _returned(parts[0], case, r)
        for total, part in ((dk, parts[1]), (dv, parts[2])):
            part = part.sum(1, keepdim=True) if case.g > 1 else part
            r.places(total).add_(part.reshape(case.b, r.times, r.width, -1))
    dq, dk, dv = (x.to(saved.q.dtype) for x in (dq, dk, dv))
    return Grads(dq, dk, dv)


def _queries(x: Tensor, r: Rectangle) -> Tensor:
    """(batch, heads, height, d): where there are several, they are heads if no keys are shared."""
    rows = x[:, :, r.rows]
    if r.times == 1:
        return rows
    rows = rows.unflatten(2, (r.times, r.height))
    return rows[:, 0] if x.shape[1] == 1 else rows.transpose(1, 2).flatten(0, 1)


def _taken(r: Rectangle, g: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The queries, keys and values of a rectangle, with as many heads each."""
    if r.times == 1:
        keys, values = k[:, None, r.left : r.right], v[:, None, r.left : r.right]
        return q[:, :, r.rows], keys.expand(-1, g, -1, -1), values.expand(-1, g, -1, -1)
    keys, values = r.places(k), r.places(v)
    if g > 1:
        keys, values = (x.flatten(0, 1)[:, None].expand(-1, g, -1, -1) for x in (keys, values))
    return _queries(q, r), keys, values


def _returned(x: Tensor, case: Case, r: Rectangle) -> Tensor:
    """Back to (b, g, rows, d)."""
    if r.times == 1:
        return x
    if case.g == 1:
        return x.flatten(1, 2)[:, None]
    return x.unflatten(0, (case.b, r.times)).transpose(1, 2).flatten(2, 3)


@dataclass(frozen=True)
class Rectangle:
    """Queries top ≤ i < bottom, keys left ≤ j < right; if causal, only j - left ≤ i - top.

    There are `times` of them, each below the last and `shift` keys further to the right.
    """

    top: int
    bottom: int
    left: int
    right: int
    causal: bool
    times: int = 1
    shift: int = 0

    @cached_property
    def height(self) -> int:
        return self.bottom - self.top

    @cached_property
    def width(self) -> int:
        return self.right - self.left

    @property
    def area(self) -> int:
        high = self.height
        return self.times * (high * (high + 1) // 2 if self.causal else high * self.width)

    @cached_property
    def rows(self) -> slice:
        return slice(self.top, self.top + self.times * self.height)

    def follows(self, last: Rectangle) -> bool:
        """It is the next of those that `last` stands for, over keys of its own."""
        shift = self.left - last.left - (last.times - 1) * last.shift
        alike = (self.height, self.width, self.causal) == (last.height, last.width, last.causal)
        next_ = self.top == last.rows.stop and shift >= self.width
        return alike and next_ and (last.times == 1 or shift == last.shift)

    def places(self, x: Tensor) -> Tensor:
        """(b, m, d) as (b, times, width, d): a view."""
        (b, _, d), (sb, sm, sd) = x.shape, x.stride()
        shape, strides = (b, self.times, self.width, d), (sb, sm * self.shift, sm, sd)
        return x.as_strided(shape, strides, x.storage_offset() + self.left * sm)


@cached_by_case
def _rectangles(case: Case) -> tuple[Rectangle, ...]:
    return rectangles(case.graph, case.n, case.m) or ()


@cached
def rectangles(graph: Pattern, n: int, m: int) -> tuple[Rectangle, ...] | None:
    """The graph as rectangles and triangles; None if it has other pieces, or too many."""
    if residue_groups(graph, n, m) is not None or graph.bitmap is not None:
        return None  # it has steps, or runs of keys too many to look at
    p = graph.rows(n, m).trapezoids()
    if len(p) > 64 * MOST or (p.step > 1).any():
        return None
    if not ((p.dstart == 0) | (p.bottom - p.top == 1)).all():
        return None
    grows = (p.dstop == 1) & (p.bottom - p.top > 1)
    corner = np.where(grows, p.stop - 1, p.stop)
    below = _stacked(p.top, p.bottom, p.start, corner)
    top, bottom, left = p.top[grows], p.bottom[grows], corner[grows]
    beside = np.stack([top, bottom, left, left + bottom - top], axis=1)
    if _at_least(below) + _at_least(beside) > MOST:
        return None
    out = [Rectangle(t, b, x, y, False) for t, b, x, y in below.tolist()]
    out += [Rectangle(t, b, x, y, True) for t, b, x, y in beside.tolist()]
    out = _in_runs(out)
    return tuple(out) if len(out) <= MOST else None


def _at_least(lines: Ints) -> int:
    """How many batches there are at least: a batch is over where the next one does not follow."""
    if not len(lines):
        return 0
    top, bottom, left, right = lines[np.lexsort((lines[:, 2], lines[:, 0]))].T
    alike = (np.diff(bottom - top) == 0) & (np.diff(right - left) == 0)
    follows = (top[1:] == bottom[:-1]) & (np.diff(left) >= (right - left)[1:])
    return 1 + int((~(alike & follows)).sum())


def _in_runs(several: list[Rectangle]) -> list[Rectangle]:
    """Equal ones one below the other, over different keys, become one batch."""
    out: list[Rectangle] = []
    for r in sorted(several, key=lambda r: (r.causal, r.top, r.left)):
        if out and r.follows(out[-1]):
            last = out[-1]
            shift = (r.left - last.left) // last.times
            out[-1] = replace(last, times=last.times + 1, shift=shift)
        else:
            out.append(r)
    return out


def _stacked(top: Ints, bottom: Ints, left: Ints, right: Ints) -> Ints:
    """(top, bottom, left, right): those over the same keys in neighbouring rows become one."""
    lines = np.stack([top, bottom, left, right], axis=1)[left < right]
    lines = lines[np.lexsort((lines[:, 0], lines[:, 3], lines[:, 2]))]
    goes_on = (lines[1:, 2:] == lines[:-1, 2:]).all(1) & (lines[1:, 0] == lines[:-1, 1])
    first = np.flatnonzero(np.concatenate([[True], ~goes_on]))[: len(lines)]
    out = lines[first]
    out[:, 1] = lines[np.append(first[1:], len(lines)) - 1, 1] if len(lines) else out[:, 1]
    return out


@dataclass(frozen=True)
class RowRange:
    """Rows top ≤ row < bottom of each of the copies first ≤ t < last of a rectangle, and as many
    keys of each as they attend to."""

    of: Rectangle
    first: int
    last: int
    top: int
    bottom: int

    @property
    def width(self) -> int:
        return self.bottom if self.of.causal else self.of.width

    @property
    def rows(self) -> slice:
        start = self.of.top + self.first * self.of.height + self.top
        count = (self.last - self.first - 1) * self.of.height + self.bottom - self.top
        return slice(start, start + count)

    def tile(self, case: Case, terms: Terms, device: torch.device) -> Tile:
        copy = torch.arange(self.first, self.last, device=device)[:, None, None]
        row = torch.arange(self.top, self.bottom, device=device)[None, :, None]
        column = torch.arange(self.width, device=device)[None, None]
        i = self.of.top + copy * self.of.height + row
        j = self.of.left + copy * self.of.shift + column
        allowed = column <= row if self.of.causal else None
        edge = None
        if terms.edge_bias is not None or terms.edge_scale is not None:
            edge = numbers(case.graph, case.n, case.m, i, j)
        return Tile(i, j, edge, allowed)

    def queries(self, x: Tensor) -> Tensor:
        """(b, g, n, ...) as (b, g, copies, rows, ...)."""
        x = x[:, :, self.of.rows].unflatten(2, (self.of.times, self.of.height))
        return x[:, :, self.first : self.last, self.top : self.bottom]

    def keys(self, x: Tensor) -> Tensor:
        """(b, m, d) as (b, copies, keys, d): a view."""
        return self.of.places(x)[:, self.first : self.last, : self.width]


def parts(case: Case, rectangles: tuple[Rectangle, ...]) -> Iterator[RowRange]:
    for one in rectangles:
        row = case.b * case.g * one.width
        if row * one.height <= materialised.NUMBERS:
            step = max(materialised.NUMBERS // max(row * one.height, 1), 1)
            for at in range(0, one.times, step):
                yield RowRange(one, at, min(at + step, one.times), 0, one.height)
        else:
            step = max(materialised.NUMBERS // row, 1)
            for copy in range(one.times):
                for top in range(0, one.height, step):
                    yield RowRange(one, copy, copy + 1, top, min(top + step, one.height))


def _materialised(
    case: Case,
    rectangles: tuple[Rectangle, ...],
    tensors: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
) -> tuple[Tensor, Tensor]:
    q, k, v = tensors
    merged = materialised.Merged(case.n)
    for part in parts(case, rectangles):
        taken = (part.queries(q), part.keys(k), part.keys(v))
        out, lse = materialised.forward(case, terms, taken, part.tile(case, terms, q.device))
        merged.add(out.flatten(2, 3), lse.flatten(2, 3), part.rows)
    return merged.out.to(q.dtype), merged.lse


def _materialised_backward(
    case: Case, rectangles: tuple[Rectangle, ...], saved: Saved, dout: Tensor
) -> Grads:
    total, kind = TermGrads(case, saved.terms), wide(saved.q.dtype)
    delta = row_dots(dout, saved.out)
    dq, dk, dv = (
        torch.zeros(x.shape, dtype=kind, device=x.device) for x in (saved.q, saved.k, saved.v)
    )
    for part in parts(case, rectangles):
        taken = (part.queries(saved.q), part.keys(saved.k), part.keys(saved.v))
        rows = (part.queries(dout), part.queries(delta), part.queries(saved.lse))
        tile = part.tile(case, saved.terms, dout.device)
        grads = materialised.backward(case, saved.terms, taken, rows, tile, total)
        dq[:, :, part.rows] += grads[0].flatten(2, 3)
        part.keys(dk).add_(grads[1])
        part.keys(dv).add_(grads[2])
    dq, dk, dv = (x.to(saved.q.dtype) for x in (dq, dk, dv))
    return Grads(dq, dk, dv, total.terms())
