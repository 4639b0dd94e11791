"""The lengths of the axes of attention: in all, or in each sample, padded where it is ragged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.ground.index import STRINGS, Grid, Index, Keys, ascending, index_of, locate, pack
from edgewise.ground.joins.body import SAMPLE
from edgewise.kernels.attention.calls.kernel_calls import first_keys
from edgewise.kernels.attention.present_rows import is_relative
from edgewise.language import nodes
from edgewise.physical.attention.pairs import attends
from edgewise.physical.attention.step import CAUSAL, head_names
from edgewise.plan.nodes import Attention

MOST_PADDING = 16  # places for each row; beyond, rules over the rows alone are the smaller work


class Refused(Exception):
    """Internal: why an attention node cannot be run as one."""


@dataclass
class Extents:
    """The axes that expressions share: each has one length, or one in each of `samples`.

    Samples in which one of the expressions has no rows are not `alive`: they attend to nothing.
    `numbers` are the keys along an axis of heads where they are not 0, 1, 2, ..., in order.
    """

    samples: int | None
    numbers: dict[str, Tensor] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)
    each: dict[str, Tensor] = field(default_factory=dict)  # (samples,)
    found: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    alive: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.bool))

    def __post_init__(self) -> None:
        self.alive = self.alive.expand(self.samples or 1)

    def meet(
        self,
        heads: Iterable[str],
        parts: Sequence[tuple[tuple[str, ...], Index]],
        held: Mapping[str, Sequence[Tensor]],
    ) -> None:
        """The axes `heads` have the keys that all parts have, and all conditions `held` on them."""
        for name in heads:
            found = [
                _along(index, names.index(name)) for names, index in parts if name in names
            ] + list(held.get(name, ()))
            if not found or (_as_long(found) and _counts(found)):
                continue
            both = found[0]
            for other in found[1:]:
                both = both[torch.isin(both, other)]
            if not both.shape[0]:
                raise Refused(f"no value of `{name}` has a query, a key and a value")
            self.numbers[name] = both

    def ranked(self, names: tuple[str, ...], index: Index) -> tuple[Index, Tensor | None]:
        """An index by the places along axes of heads in place of their keys, and which of its rows
        have one; None for all, as they lie."""
        own = [n for n in names if n in self.numbers]
        if not own:
            return index, None
        columns = [index.column(p) for p in range(index.arity)]
        there = torch.ones(index.rows, dtype=torch.bool)
        for name in own:
            at, known = names.index(name), self.numbers[name]
            place = torch.searchsorted(known, columns[at].contiguous()).clamp(
                max=known.shape[0] - 1
            )
            there &= known[place] == columns[at]
            columns[at] = place
        rows = there.nonzero()[:, 0]
        (codes,) = pack([column[rows] for column in columns])
        if not ascending(codes):
            rows = rows[codes.argsort()]
        every = rows.shape[0] == index.rows and ascending(rows)
        keys = torch.stack([column[rows] for column in columns], 1)
        return index_of(keys), None if every else rows

    def key(self, name: str, places: Tensor) -> Tensor:
        """The keys at places along an axis."""
        known = self.numbers.get(name)
        return places if known is None else known[places]

    def keyed(self, names: Sequence[str], index: Index) -> Index:
        """The index by places as one by keys; the reverse of `ranked`."""
        if not any(name in self.numbers for name in names):
            return index
        first = index.arity - len(names)  # the sample's, if there is one
        columns = [index.column(p) for p in range(index.arity)]
        for at, name in enumerate(names, first):
            columns[at] = self.key(name, columns[at])
        return Keys(torch.stack(columns, 1))

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

    def precompute(self, *, alike: tuple[str, ...]) -> None:
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
                raise Refused(f"axis `{name}` has different lengths in different samples")

    def padded_grid(
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


def _along(index: Index, position: int) -> Tensor:
    """The keys that occur along one axis, in order."""
    if isinstance(index, Grid):
        return torch.arange(index.sizes[position])
    return index.column(position).unique()


def _as_long(found: Sequence[Tensor]) -> bool:
    return all(keys.shape[0] == found[0].shape[0] for keys in found)


def _counts(found: Sequence[Tensor]) -> bool:
    """Whether keys of one number are 0, 1, 2, ... in all."""
    return all(torch.equal(keys, torch.arange(keys.shape[0])) for keys in found)


@dataclass(frozen=True, eq=False)
class Attending:
    """The heads; where they are not all, their queries, or in ragged samples their rows among the
    padded ones; and the rows of each sample, queries and keys, where some are padded."""

    index: Index
    queries: Tensor | None = None
    rows: Tensor | None = None
    lengths: Tensor | None = None
    query_lengths: Tensor | None = None


def attending_in_all(node: Attention, extents: Extents, pattern: Any) -> Attending:
    names, axes = head_names(node), extents.axes
    grid = Grid(tuple(axes[name] for name in names))
    n, m = axes[node.query], axes[node.key]
    if pattern is None:
        if m == 0:
            raise Refused("there are no keys")
        return Attending(extents.keyed(names, grid))
    if not n or not m:
        raise Refused("there are no pairs")
    some = attends(pattern, n, m)
    if bool(some.all()):
        return Attending(extents.keyed(names, grid))
    queries = some.nonzero()[:, 0]
    at = names.index(node.query)
    fewer = Grid((*grid.sizes[:at], queries.shape[0], *grid.sizes[at + 1 :]))
    columns = [fewer.column(p) for p in range(grid.arity)]
    columns[at] = queries[columns[at]]
    return Attending(extents.keyed(names, Keys(torch.stack(columns, 1))), queries)


def attending_in_samples(node: Attention, extents: Extents, pattern: Any) -> Attending:
    names, axes, alive = head_names(node), extents.axes, extents.alive
    n, m = axes[node.query], axes[node.key]
    queries, keys = extents.each[node.query], extents.each[node.key]
    if node.pairs.pattern is not None:
        _refuse_other(node.pairs.pattern.pattern, queries[alive], keys[alive], n, m)
    first = torch.zeros(n, dtype=torch.int64) if pattern is None else first_keys(pattern, n, m, 0)
    grid = Grid((len(alive), *(axes[name] for name in names)))
    sample, place = grid.column(0), grid.column(1 + names.index(node.query))
    attends = (place < queries[sample]) & (first[place] < keys[sample])
    rows = attends.nonzero()[:, 0]
    if not len(rows):
        raise Refused("there are no pairs in any sample")
    index = index_of(torch.stack([grid.column(p)[rows] for p in range(grid.arity)], 1))
    short = keys < (queries if pattern == CAUSAL else m)
    # no sample is without a key: a softmax over nothing has no gradient
    lengths = torch.where(alive, keys, m) if bool(short[alive].any()) else None
    asking = torch.where(alive, queries, 0) if bool((queries[alive] < n).any()) else None
    every = len(rows) == grid.rows
    return Attending(extents.keyed(names, index), None, None if every else rows, lengths, asking)


def _refuse_other(pattern: Pattern, queries: Tensor, keys: Tensor, n: int, m: int) -> None:
    """A pattern of padded samples is that of each, cut off; some depend on where a sample ends."""
    if is_relative(pattern):  # then it never depends on the lengths
        return
    pairs = torch.unique(torch.stack([queries, keys]), dim=1).T.tolist()
    longest = pattern.edges(n, m)
    for length, width in pairs:
        inside = (longest[0] < length) & (longest[1] < width)
        if not torch.equal(pattern.edges(length, width), longest[:, inside]):
            raise Refused(f"{pattern!r} is a different pattern in shorter samples")


def is_product(index: Index) -> bool:
    """Whether keys are all combinations of those that occur along each axis.

    >>> is_product(Keys(torch.tensor([[0, 4], [0, 6], [2, 4], [2, 6]])))
    True
    """
    if isinstance(index, Grid):
        return True
    return math.prod(_along(index, p).shape[0] for p in range(index.arity)) == index.rows
