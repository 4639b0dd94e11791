"""Rows that a grid repeats, turns round or takes in a row: no index is needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.ground.rules import GroundRule
from edgewise.physical.column import Column, on_grid

LEAST = 64  # rows, below which one index_select is as good


@dataclass(frozen=True)
class Strides:
    """Place (a, b) of a grid of `outer` × `inner` reads row a · steps[0] + b · steps[1]."""

    outer: int
    inner: int
    steps: tuple[int, int]

    @property
    def size(self) -> int:
        """Of the source."""
        return {(1, 0): self.outer, (0, 1): self.inner}.get(self.steps, self.outer * self.inner)

    def taken(self, value: Column) -> Column:
        rest = value.shape
        if self.steps == (1, 0):
            wide = value.data.unsqueeze(2).expand(-1, -1, self.inner, *rest)
        elif self.steps == (0, 1):
            wide = value.data.unsqueeze(1).expand(-1, self.outer, -1, *rest)
        else:
            wide = on_grid(value, (self.inner, self.outer)).transpose(1, 2)
        return Column(wide.reshape(len(wide), self.outer * self.inner, *rest))


@dataclass(frozen=True)
class Stretch:
    """Rows one after another, from the `first`."""

    first: int
    count: int
    size: int  # of the source

    def taken(self, value: Column) -> Column:
        return Column(value.data.narrow(1, self.first, self.count))


def strides_of(rows: Tensor, size: int) -> Strides | Stretch | None:
    """How a grid reads the `size` rows of a source; None where it takes an index.

    >>> strides_of(torch.arange(3).repeat_interleave(4), 3)
    Strides(outer=3, inner=4, steps=(1, 0))
    >>> strides_of(torch.arange(6).view(2, 3).T.flatten(), 6)
    Strides(outer=3, inner=2, steps=(1, 3))
    >>> strides_of(torch.arange(2, 5), 6)
    Stretch(first=2, count=3, size=6)
    """
    if 0 < len(rows) < size:
        first = int(rows[0])
        one = torch.equal(rows, torch.arange(first, first + len(rows)))
        return Stretch(first, len(rows), size) if one else None
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


def of_ground(ground: GroundRule) -> dict[int, Strides | Stretch]:
    """Place of a literal → how its rows are read, where many are and no index is needed."""
    found = {}
    for at, rows in ground.rows.items():
        if rows is not None and len(rows) >= LEAST:
            way = strides_of(rows, ground.sizes.get(at, int(rows.max()) + 1))
            if way is not None:
                found[at] = way
    return found
