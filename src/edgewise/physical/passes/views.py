"""Gathers as views: rows at a regular distance, and gathers of gathers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from edgewise.layouts.recorded import one_call
from edgewise.physical.lowering import Lowering, input_node
from edgewise.physical.passes.rows import Gather, gather_of

LEAST = 64  # rows, below which one index_select is as good


@dataclass(frozen=True)
class Strides:
    """Place (a, b) of a grid of `outer` × `inner` reads row a · steps[0] + b · steps[1]."""

    outer: int
    inner: int
    steps: tuple[int, int]

    def __call__(self, x: Tensor) -> Tensor:
        rest = x.shape[2:]
        if self.steps == (1, 0):
            wide = x.unsqueeze(2).expand(-1, -1, self.inner, *rest)
        elif self.steps == (0, 1):
            wide = x.unsqueeze(1).expand(-1, self.outer, -1, *rest)
        else:
            wide = x.reshape(len(x), self.inner, self.outer, *rest).transpose(1, 2)
        return wide.reshape(len(wide), self.outer * self.inner, *rest)


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows, from the `first`."""

    first: int
    count: int

    def __call__(self, x: Tensor) -> Tensor:
        return x.narrow(1, self.first, self.count)


@one_call
def strides_of(rows: Tensor, size: int) -> Strides | Stretch | None:
    """How a grid reads the `size` rows of a source; None where it takes an index.

    >>> strides_of(torch.arange(3).repeat_interleave(4), 3)
    Strides(outer=3, inner=4, steps=(1, 0))
    >>> strides_of(torch.arange(6).view(2, 3).T.flatten(), 6)
    Strides(outer=3, inner=2, steps=(1, 3))
    >>> strides_of(torch.arange(2, 5), 6)
    Stretch(first=2, count=3)
    """
    rows = rows.cpu()
    if 0 < len(rows) < size:
        first = int(rows[0])
        one = torch.equal(rows, torch.arange(first, first + len(rows)))
        return Stretch(first, len(rows)) if one else None
    if size < 2 or len(rows) < size or len(rows) % size:
        return None
    times = len(rows) // size
    if times > 1:
        found = [Strides(size, times, (1, 0)), Strides(times, size, (0, 1))]
    else:
        outer = int(rows[1])
        found = [Strides(outer, size // outer, (1, outer))] if outer and not size % outer else []
    for way in found:
        a, b = torch.arange(way.outer)[:, None], torch.arange(way.inner)
        if torch.equal((a * way.steps[0] + b * way.steps[1]).flatten(), rows):
            return way
    return None


def strided_views(plan: Lowering) -> int:
    """gather(x, index) → a view of x, where the index is a regular stride."""
    changed = 0
    for node in plan.nodes("index_select"):
        gather = gather_of(plan, node)
        if gather is None or plan.usual(gather.rows.shape[0]) < LEAST:
            continue
        rows, size = gather.rows, gather.size
        way = plan.analyse(("strides", id(rows), size), partial(strides_of, rows, size), rows)
        if way is not None:
            with plan.rewriting(node):
                plan.replace(node, way(plan.symbol(gather.base)))
            changed += 1
    return changed


# gathers of gathers


def merge_gathers(plan: Lowering) -> int:
    """gather(gather(x, a), b) → gather(x, a[b])."""
    changed = 0
    for node in plan.nodes("index_select"):
        outer = gather_of(plan, node)
        if outer is None:
            continue
        inner = _inner_gather(plan, outer)
        if inner is None:
            continue
        a, b = inner.rows, outer.rows
        rows = plan.analyse(("gathers", id(a), id(b)), partial(a.index_select, 0, b), a, b)
        with plan.rewriting(node):
            shape = outer.base.meta["like"].shape
            base = plan.symbol(inner.base).reshape(shape[0], inner.size, *shape[2:])
            plan.replace(node, base.index_select(1, rows))
        changed += 1
    return changed


def _inner_gather(plan: Lowering, outer: Gather) -> Gather | None:
    """The gather whose rows are those that another gather reads."""
    base, rows = outer.base, outer.base.meta["like"].shape[:2]
    while base.target == "reshape" and base.meta["like"].shape[:2] == rows:
        base = input_node(base, 0)
    return gather_of(plan, base) if base.meta["like"].shape[:2] == rows else None
