"""The rules of one relation put together: combined by its line, facts beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import show
from edgewise.ground.colour_refinement import classes, mixed
from edgewise.ground.index import (
    Grid,
    Index,
    Keys,
    distinct_rows,
    index_of,
    locate,
    rows_of,
    same_keys,
)
from edgewise.language import functions, nodes
from edgewise.language.statements import SUM, combination
from edgewise.physical.functions import combine, transform
from edgewise.physical.lowering_state import Column, column
from edgewise.physical.opaque import opaque


@dataclass(frozen=True, eq=False)
class Merge:
    """Where the heads of each part lie in the relation, and which parts each row has.

    A part is the facts or one rule, of which there are `sizes` rows; `places` are the row of each
    part for each row that is computed, -1 where it has none, None for all in order.
    """

    relation: str
    index: Index
    rows: int  # that are computed
    places: tuple[Tensor | None, ...]
    sizes: tuple[int, ...]
    facts: bool
    line: nodes.Line | None
    added: tuple[Tensor | None, ...] | None = None  # where parts that are summed lie, None: all
    expand: Tensor | None = None  # the class of each row, where rows are computed by class

    @cached_property
    def classes(self) -> tuple[tuple[tuple[int, ...], tuple[Tensor | None, ...], Tensor], ...]:
        """The rows that have the same parts: for each the parts, the rows of each of them, and the
        rows that are computed."""
        if all(at is None for at in self.places):
            every = tuple(range(len(self.places)))
            return ((every, (None,) * len(every), torch.arange(self.rows)),)
        return tuple(_classes(self.places, self.sizes, self.rows))

    @cached_property
    def order(self) -> Tensor | None:
        """Row of the relation → place among the rows of all classes."""
        if len(self.classes) < 2:
            return None
        return torch.cat([here for _, _, here in self.classes]).argsort()

    def complete(self) -> None:
        """Work out what lazily depends on keys, while they are on the CPU."""
        _ = self.classes, self.order

    def __call__(self, parts: Sequence[Column], training: bool) -> Column:
        if not self.index.rows:
            return parts[0]
        return self._together(parts, training).take(self.expand)

    def _together(self, parts: Sequence[Column], training: bool) -> Column:
        if self.added is not None and self._alike(parts):
            return self._transformed(Column(self._sum(parts, self.added)), training)
        found = []
        for members, rows, _ in self.classes:
            chosen = [parts[p].take(r) for p, r in zip(members, rows, strict=True)]
            found.append(self._value(members, chosen, training))
        return self._assembled(found) if len(found) > 1 else found[0].expanded(self.rows)

    def _value(self, members: tuple[int, ...], chosen: list[Column], training: bool) -> Column:
        if self.facts and members == (0,):
            return chosen[0]  # a line does not apply to facts
        listed = self.line.functions if self.line is not None else ()
        value = combine(combination(listed) if self.line is not None else SUM, chosen)
        return self._transformed(value, training)

    def _transformed(self, value: Column, training: bool) -> Column:
        for function in self.line.functions if self.line is not None else ():
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, training)
        return value

    def _alike(self, parts: Sequence[Column]) -> bool:
        """Whether parts can be added as they are: one shape, a row for each of their atoms."""
        sizes = [self.rows if at is None else at.shape[0] for at in self.added or ()]
        one = {(c.data.shape[0], c.shape) for c in parts}
        return len(one) == 1 and all(c.rows == n for c, n in zip(parts, sizes, strict=True))

    def _sum(self, parts: Sequence[Column], added: tuple[Tensor | None, ...]) -> Tensor:
        out = parts[added.index(None)].data
        for value, at in zip(parts, added, strict=True):
            if at is not None:
                out = added_at(out, at, value.data)
        return out

    def _assembled(self, found: list[Column]) -> Column:
        shapes = {c.shape for c in found}
        if len(shapes) > 1:
            raise ShapeMismatch(
                f"`{self.relation}` has values of different shapes: "
                + ", ".join(sorted(map(show, shapes))),
                help="a compiled relation has values of one shape",
            )
        batch = next((b for c in found if (b := c.data.shape[0]) != 1), 1)  # it may be 0
        joined = torch.cat(
            [
                value.data.expand(batch, rows.shape[0], *value.shape)
                for value, (_, _, rows) in zip(found, self.classes, strict=True)
            ],
            1,
        )
        return column(joined).take(self.order)


@opaque(like=lambda out, at, more: torch.empty(out.shape, dtype=out.dtype, device="meta"))
def added_at(out: Tensor, at: Tensor, more: Tensor) -> Tensor:
    """`more` added to some rows; autocast may have computed either in a lower precision."""
    dtype = torch.promote_types(out.dtype, more.dtype)
    return out.to(dtype).index_add(1, at, more.to(dtype))


def merged(relation: str, parts: Sequence[Index], facts: bool, line: nodes.Line | None) -> Merge:
    """Lay the parts of a relation over each other; the first part is the facts if `facts`."""
    index, places = aligned(parts)
    return merge_of(relation, index, index.rows, places, [p.rows for p in parts], facts, line)


def aligned(parts: Sequence[Index]) -> tuple[Index, list[Tensor | None]]:
    """The atoms of all parts, and the row of each part for each: -1 is none, None all in order."""
    if all(same_keys(part, parts[0]) for part in parts[1:]):
        return parts[0], [None] * len(parts)
    grid = next((p for p in parts if isinstance(p, Grid) and _holds_all(p, parts)), None)
    if grid is not None:
        return grid, [_rows_on(part, grid) for part in parts]
    index = index_of(distinct_rows(torch.cat([part.keys for part in parts])))
    keys = index.keys
    return index, [rows_of(part, keys) for part in parts]


def _holds_all(grid: Grid, parts: Sequence[Index]) -> bool:
    """Whether a grid, of some atoms, has those of all parts."""
    if not grid.rows or not grid.arity:
        return False
    return all(
        all(
            low >= 0 and high < size
            for (low, high), size in zip(part.ends, grid.sizes, strict=False)
        )
        if isinstance(part, Keys)
        else all(size <= most for size, most in zip(part.sizes, grid.sizes, strict=True))
        for part in parts
    )


def _rows_on(part: Index, grid: Grid) -> Tensor:
    """The row of a part for each atom of a grid around it, -1 where it has none: no search."""
    if part == grid:
        return torch.arange(grid.rows)
    at = locate(grid, [part.column(p) for p in range(part.arity)])
    return torch.full((grid.rows,), -1).index_copy_(0, at, torch.arange(part.rows))


def merge_of(
    relation: str,
    index: Index,
    rows: int,
    places: Sequence[Tensor | None],
    sizes: Sequence[int],
    facts: bool,
    line: nodes.Line | None,
    expand: Tensor | None = None,
) -> Merge:
    """Put parts together that have `sizes` rows: of each the rows at `places`."""
    added = None
    if not all(at is None for at in places):
        added = _added(places, sizes, rows, facts, line)
    options = facts, line, added, expand
    return Merge(relation, index, rows, tuple(places), tuple(sizes), *options)


def _classes(
    places: Sequence[Tensor | None], sizes: Sequence[int], rows: int
) -> Iterator[tuple[tuple[int, ...], tuple[Tensor | None, ...], Tensor]]:
    """The rows that have the same parts."""
    table = [torch.arange(rows) if at is None else at for at in places]
    found = classes(mixed([(at >= 0).long() for at in table], rows))
    firsts = found.first.tolist()
    parts = [tuple(p for p, at in enumerate(table) if at[first] >= 0) for first in firsts]
    for members, number in sorted(zip(parts, range(len(parts)), strict=True)):
        here = (found.of == number).nonzero()[:, 0]
        yield members, tuple(_all_or(table[p][here], sizes[p]) for p in members), here


def _added(
    places: Sequence[Tensor | None],
    sizes: Sequence[int],
    count: int,
    facts: bool,
    line: nodes.Line | None,
) -> tuple[Tensor | None, ...] | None:
    """The rows of each part where the relation is their sum and one of them has every row."""
    listed = line.functions if line is not None else ()
    if combination(listed).name != "sum" or (facts and listed):
        return None
    found: list[Tensor | None] = []
    for at, size in zip(places, sizes, strict=True):
        if at is None:
            if size != count:
                return None
            found.append(None)
            continue
        rows = (at >= 0).nonzero()[:, 0]
        if _all_or(at[rows], size) is not None:
            return None
        found.append(_all_or(rows, at.shape[0]))
    full = sum(rows is None for rows in found)
    return tuple(found) if full == 1 else None


def _all_or(rows: Tensor, count: int) -> Tensor | None:
    """Some rows of a part; None if they are all of them, in order."""
    every = rows.shape[0] == count and bool((rows == torch.arange(count)).all())
    return None if every else rows
