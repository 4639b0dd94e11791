"""How far the axes of an attention reach: in all, or in each sample of a ragged batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.ground.body import SAMPLE
from edgewise.ground.constants import STRINGS
from edgewise.ground.index import Grid, Index, locate
from edgewise.language import nodes

MOST_PADDING = 16  # places for each row; beyond, rules over the rows alone are the smaller work


class Refused(Exception):
    """Internal: why an attention node cannot be run as one."""


@dataclass
class Extents:
    """The axes that expressions share: each has one length, or one in each of `samples`.

    Samples in which one of the expressions has no rows are not `alive`: nothing is heard there.
    """

    samples: int | None
    axes: dict[str, int] = field(default_factory=dict)
    each: dict[str, Tensor] = field(default_factory=dict)  # (samples,)
    found: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    alive: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.bool))

    def __post_init__(self) -> None:
        self.alive = self.alive.expand(self.samples or 1)

    def add(self, item: nodes.Expression, names: tuple[str, ...], index: Index) -> None:
        """Note the axes of an expression; refuse it where it is not dense."""
        if names[:1] != (SAMPLE.name,):
            if not isinstance(index, Grid):
                raise Refused(f"`{item!r}` is not dense")
            for name, size in zip(names, index.sizes, strict=True):
                if self.axes.setdefault(name, size) != size:
                    raise Refused(f"axis `{name}` has lengths {self.axes[name]} and {size}")
            return
        assert self.samples is not None
        columns = [index.column(p) for p in range(index.arity)]
        start = torch.zeros(self.samples, dtype=torch.int64)
        rows = torch.bincount(columns[0], minlength=self.samples)
        ends = [start.scatter_reduce(0, columns[0], c + 1, "amax") for c in columns[1:]]
        places = torch.ones_like(rows)
        for column, end in zip(columns[1:], ends, strict=True):
            if bool(((column < 0) | (column >= STRINGS)).any()):
                raise Refused(f"`{item!r}` is not dense")
            places = places * end
        some = rows > 0
        if not torch.equal(places[some], rows[some]):
            raise Refused(f"`{item!r}` is not dense in every sample")
        self.alive = self.alive & some
        self.found += [(n, end, some) for n, end in zip(names[1:], ends, strict=True)]

    def settle(self, *, alike: tuple[str, ...]) -> None:
        """Let the lengths of all expressions meet; those of axes in `alike` do not differ."""
        if self.samples is None:
            return
        if not bool(self.alive.any()):
            raise Refused("there are no pairs in any sample")
        fixed = self.axes.items()
        known = [(n, torch.full((self.samples,), size), self.alive) for n, size in fixed]
        for name, ends, _ in [*known, *self.found]:
            mine = torch.where(self.alive, ends, 0)
            if not torch.equal(self.each.setdefault(name, mine), mine):
                raise Refused(f"axis `{name}` has several lengths in one sample")
        for name, ends in self.each.items():
            self.axes[name] = int(ends.max())
            if name in alike and len(ends[self.alive].unique()) > 1:
                raise Refused(f"axis `{name}` has other lengths in other samples")

    def laid(
        self, names: tuple[str, ...], index: Index
    ) -> tuple[tuple[str, ...], tuple[int, ...], int | None, Tensor | None]:
        """The axes of an expression but for the sample, their sizes, the number of samples, and
        the row at each place of the padded grids; None where rows and places are the same."""
        own = names[1:] if names[:1] == (SAMPLE.name,) else names
        sizes = tuple(self.axes[n] for n in own)
        if own == names:
            return own, sizes, None, None
        assert self.samples is not None
        grid = Grid((self.samples, *sizes))
        if grid == index:
            return own, sizes, self.samples, None
        if grid.rows > MOST_PADDING * max(index.rows, 64):
            raise Refused(
                f"samples are too different: {math.prod(grid.sizes):,} places for {index.rows:,} "
                "rows"
            )
        rows = locate(index, [grid.column(p) for p in range(grid.arity)])
        alive = self.alive[grid.column(0)]
        return own, sizes, self.samples, torch.where(alive & (rows >= 0), rows, index.rows)
