"""Which atoms of a relation hold: a full grid of integers, or explicit keys in key order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Grid:
    """All tuples of integers below `sizes`, in row-major order.

    >>> Grid((2, 2)).column(1)
    tensor([0, 1, 0, 1])
    """

    sizes: tuple[int, ...]

    @property
    def arity(self) -> int:
        return len(self.sizes)

    @property
    def rows(self) -> int:
        return math.prod(self.sizes)

    def column(self, position: int) -> Tensor:
        inner = math.prod(self.sizes[position + 1 :])
        outer = math.prod(self.sizes[:position])
        axis = torch.arange(self.sizes[position])
        return axis.repeat_interleave(inner).repeat(outer)

    @property
    def keys(self) -> Tensor:
        """(rows, arity)."""
        columns = [self.column(p) for p in range(self.arity)]
        return torch.stack(columns, 1) if columns else torch.zeros(1, 0, dtype=torch.int64)

    def length(self, position: int) -> int:
        return self.sizes[position]

    @property
    def spans(self) -> tuple[int, ...]:
        return self.sizes


@dataclass(frozen=True, eq=False)
class Keys:
    """Explicit keys (rows, arity) without repetition, sorted but for the list of a domain."""

    keys: Tensor

    @property
    def arity(self) -> int:
        return self.keys.shape[1]

    @property
    def rows(self) -> int:
        return self.keys.shape[0]

    def column(self, position: int) -> Tensor:
        return self.keys[:, position]

    def length(self, position: int) -> int:
        """One more than the largest integer of a column."""
        column = self.keys[:, position]
        integers = column[column < (1 << 40)]
        return int(integers.max()) + 1 if integers.numel() else 0

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """For each column the least and the largest key and all between them, counted."""
        if not self.rows:
            return (0,) * self.arity
        return tuple((self.keys.max(0).values - self.keys.min(0).values + 1).tolist())

    @cached_property
    def packed(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Keys as sorted integers, their order, and the least key of each column."""
        low = self.keys.min(0).values
        codes = _packed(self.keys - low, self.spans)
        if bool((codes[1:] > codes[:-1]).all()):
            return codes, None, low
        return *codes.sort(), low


Index = Grid | Keys
WIDEST = 1 << 62  # keys that one integer tells apart


def same_keys(one: Index, other: Index) -> bool:
    """Whether the same atoms hold, in the same order.

    >>> same_keys(Keys(torch.tensor([[1], [4]])), Keys(torch.tensor([[1], [4]])))
    True
    """
    if isinstance(one, Keys) and isinstance(other, Keys):
        return one is other or torch.equal(one.keys, other.keys)
    return one == other


def index_of(keys: Tensor) -> Index:
    """Sorted, distinct keys as an index: a grid where they are one.

    >>> index_of(torch.tensor([[0], [1], [2]]))
    Grid(sizes=(3,))
    """
    if keys.shape[1] == 0:
        return Grid(()) if keys.shape[0] else Keys(keys)
    if keys.shape[0] == 0:
        return Keys(keys)
    sizes = tuple((keys.max(0).values + 1).tolist())
    if math.prod(sizes) == keys.shape[0] and bool((keys >= 0).all()):
        return Grid(sizes)
    return Keys(keys)


def distinct_rows(keys: Tensor) -> Tensor:
    """The different rows of a table of keys, in key order.

    >>> distinct_rows(torch.tensor([[2, 0], [1, 5], [2, 0]])).tolist()
    [[1, 5], [2, 0]]
    """
    if not keys.shape[1] or not keys.shape[0]:
        return keys[:1]
    return keys[_sorted(keys)[1]]


def union_of(old: Index, keys: Tensor) -> tuple[Index, Tensor]:
    """The atoms of an index and of distinct keys, and the row of each: those of the index first.

    >>> union_of(Keys(torch.tensor([[1], [4]])), torch.tensor([[0], [4]]))[1].tolist()
    [1, 2, 0, 2]
    """
    both = torch.cat([old.keys, keys])
    if not both.shape[1] or not len(both):
        return index_of(both[:1]), torch.zeros(len(both), dtype=torch.int64)
    order, first, number = _sorted(both)
    return index_of(both[first]), torch.empty_like(order).index_copy_(0, order, number)


def _sorted(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The order of rows, of each different one the first, and in that order its number."""
    (codes,) = pack(list(keys.unbind(1)))
    ordered, order = codes.sort()
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return order, order[fresh], fresh.cumsum(0) - 1


def pack(*tables: list[Tensor]) -> list[Tensor]:
    """Columns of several tables as one integer per row, ordered as the rows are.

    Equal rows get equal integers across the tables.
    """
    width = len(tables[0])
    if width == 0:
        return [torch.zeros(0, dtype=torch.int64) for _ in tables]
    spans, lows = [], []
    for c in range(width):
        ends = [(int(t[c].min()), int(t[c].max())) for t in tables if t[c].numel()]
        low = min((e[0] for e in ends), default=0)
        lows.append(low)
        spans.append(max((e[1] for e in ends), default=0) - low + 1)
    if math.prod(spans) >= WIDEST:
        return _ranked(tables)
    codes = []
    for table in tables:
        code = torch.zeros_like(table[0])
        for column, low, span in zip(table, lows, spans, strict=True):
            code = code * span + (column - low)
        codes.append(code)
    return codes


def _packed(keys: Tensor, spans: tuple[int, ...]) -> Tensor:
    """Rows of integers from 0 as one integer each, in the same order."""
    code = keys[:, 0]
    for c, span in enumerate(spans[1:], 1):
        code = code * span + keys[:, c]
    return code


def _ranked(tables: tuple[list[Tensor], ...]) -> list[Tensor]:
    both = torch.cat([torch.stack(table, 1) for table in tables])
    ranks = torch.unique(both, dim=0, return_inverse=True)[1]
    return list(ranks.split([len(table[0]) for table in tables]))


def locate(index: Index, columns: list[Tensor]) -> Tensor:
    """The row of each key; -1 where it does not hold."""
    if isinstance(index, Grid):
        row = torch.zeros_like(columns[0]) if columns else torch.zeros(1, dtype=torch.int64)
        inside = torch.ones_like(row, dtype=torch.bool)
        for column, size in zip(columns, index.sizes, strict=True):
            inside &= (column >= 0) & (column < size)
            row = row * size + column
        return torch.where(inside, row, -1)
    if not index.rows:
        return torch.full_like(columns[0], -1) if columns else torch.tensor([-1])
    order: Tensor | None
    if math.prod(index.spans) < WIDEST:
        have, order, low = index.packed
        keys = torch.stack(columns, 1) - low
        inside = ((keys >= 0) & (keys < torch.tensor(index.spans))).all(1)
        want = torch.where(inside, _packed(keys, index.spans), -1)
    else:
        have, want = pack(list(index.keys.unbind(1)), columns)
        have, order = have.sort()
    place = torch.searchsorted(have, want).clamp(max=index.rows - 1)
    return torch.where(have[place] == want, place if order is None else order[place], -1)
