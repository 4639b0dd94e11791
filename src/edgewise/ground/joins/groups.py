"""Rows of explicit keys found by some of their columns: CSR and filters, made once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.index import TABLE, WIDEST, Grid, Index, Keys, encode, pack, stable_order
from edgewise.layouts.recorded import integer, one_call

FILTER = 16  # entries of a filter for each key: one key in 16 that is not there passes
LEAST_FILTERED = 4096  # keys; below, a search stays in cache
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / φ: multiplicative hashing


@dataclass(frozen=True, eq=False)
class Groups:
    """The rows of keys grouped by codes below `size`, as CSR."""

    index: Keys
    codes: Tensor
    size: int

    @cached_property
    def order(self) -> Tensor | None:
        """The rows, group by group; None where they are in that order."""
        if bool((self.codes[1:] >= self.codes[:-1]).all()):
            return None
        return stable_order(self.codes, self.size)

    @cached_property
    def _ordered(self) -> Tensor:
        return self.codes if self.order is None else self.codes.index_select(0, self.order)

    @cached_property
    def _pointer(self) -> Tensor | None:
        """Where the group of each code begins; None where most codes would have none."""
        if self.size > TABLE * self.index.rows + 1024:
            return None
        counts = torch.bincount(self.codes, minlength=self.size)
        return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])

    def find(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Where the group of each code begins, and how many rows it has."""
        first = self.begin(codes)
        return first, self.begin(codes + 1) - first

    def begin(self, codes: Tensor) -> Tensor:
        """How many rows have smaller codes: where the group of each code begins."""
        if self._pointer is None:
            return torch.searchsorted(self._ordered, codes)
        return self._pointer.index_select(0, codes)

    @cached_property
    def _columns(self) -> dict[int, Tensor]:
        return {}

    def column(self, position: int) -> Tensor:
        """One column of the keys, group by group."""
        if position not in self._columns:
            column = self.index.column(position)
            ordered = column if self.order is None else column.index_select(0, self.order)
            self._columns[position] = ordered.contiguous()
        return self._columns[position]


@dataclass(frozen=True, eq=False)
class KeyFilter:
    """Which keys may be in an index: bytes by a hash of the key, never false for a key that is
    there (a Bloom filter with one hash)."""

    index: Keys

    @cached_property
    def _bits(self) -> int:
        return (FILTER * self.index.rows).bit_length()

    @cached_property
    def _table(self) -> np.ndarray:
        table = np.zeros(1 << self._bits, dtype=bool)
        table[self._hash(self.index.keys.unbind(1))] = True
        return table

    def _hash(self, columns: Sequence[Tensor]) -> np.ndarray:
        return hashed(encode(columns, self.index.ends), self._bits)

    def may_hold(self, columns: Sequence[Tensor]) -> Tensor:
        return torch.from_numpy(np.take(self._table, self._hash(columns)))


@one_call
def hashed(codes: Tensor, bits: int) -> np.ndarray:
    """A number below 2^bits for each code."""
    mixed = codes.numpy().view(np.uint64) * GOLDEN
    return (mixed >> np.uint64(64 - bits)).view(np.int64)


@dataclass(frozen=True)
class Lookups:
    """Groups and filters of the indices that joins read, as long as these live."""

    _groups: WeakKeyDictionary[Keys, dict[tuple[int, ...], Groups]] = field(
        default_factory=WeakKeyDictionary
    )
    _filters: WeakKeyDictionary[Keys, KeyFilter] = field(default_factory=WeakKeyDictionary)

    def matches(
        self, index: Keys, positions: tuple[int, ...], columns: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Groups]:
        """For each key of the columns `positions`, where its rows begin and how many there are, and
        the groups that they are in."""
        ends = [index.ends[p] for p in positions] if index.rows else [(0, 0)] * len(positions)
        size = math.prod(high - low + 1 for low, high in ends)
        if size >= WIDEST:
            codes, wanted = pack([index.column(p) for p in positions], columns)
            groups = Groups(index, codes, WIDEST)
            return *groups.find(wanted), groups
        groups = self._grouped(index, positions, size)
        inside = between(columns, ends)
        wanted = encode(columns, ends)
        first, counts = groups.find(wanted if inside is None else torch.where(inside, wanted, 0))
        return first, counts if inside is None else counts * inside, groups

    def _grouped(self, index: Keys, positions: tuple[int, ...], size: int) -> Groups:
        known = self._groups.setdefault(index, {})
        if positions not in known:
            ends = [index.ends[p] for p in positions] if index.rows else [(0, 0)] * len(positions)
            have = [index.column(p) for p in positions]
            known[positions] = Groups(index, encode(have, ends), size)
        return known[positions]

    def ranges(
        self,
        index: Keys,
        positions: tuple[int, ...],
        columns: Sequence[Tensor],
        low: Tensor,
        high: Tensor,
    ) -> tuple[Tensor, Tensor, Groups] | None:
        """As `matches`, of rows with low ≤ key ≤ high in the last of `positions`, which `columns`
        lacks; None where keys are too far apart for one integer."""
        ends = [index.ends[p] for p in positions] if index.rows else [(0, 0)] * len(positions)
        *ends, (least, most) = ends
        size = math.prod(b - a + 1 for a, b in (*ends, (least, most)))
        if size >= WIDEST:
            return None
        groups = self._grouped(index, positions, size)
        start = torch.zeros_like(low)
        inside = between(columns, ends)
        if ends:
            start = encode(columns, ends).mul_(most - least + 1)
            start = start if inside is None else torch.where(inside, start, 0)
        first = groups.begin(low.clamp(least, most + 1).sub_(least).add_(start))
        last = groups.begin(high.clamp(least - 1, most).sub_(least - 1).add_(start))
        counts = last.sub_(first).clamp_(min=0)
        return first, counts if inside is None else counts * inside, groups

    def may_hold(self, index: Index, columns: Sequence[Tensor]) -> Tensor | None:
        """False for most keys that are not in an index, true for all others; None where looking
        them up is as quick."""
        if isinstance(index, Grid) or index.rows < LEAST_FILTERED or len(columns) < 2:
            return None
        size = math.prod(index.spans)
        if size >= WIDEST or size <= TABLE * columns[0].shape[0]:
            return None
        if index not in self._filters:
            if 4 * columns[0].shape[0] < index.rows:
                return None
            self._filters[index] = KeyFilter(index)
        return self._filters[index].may_hold(columns)


def between(columns: Sequence[Tensor], ends: Sequence[tuple[int, int]]) -> Tensor | None:
    """Which rows have each key between the least and the largest of its column; None if all."""
    inside = None
    for column, (low, high) in zip(columns, ends, strict=True):
        least, most = (integer(end) for end in column.aminmax()) if column.shape[0] else (low, high)
        if least < low or most > high:
            here = (column >= low) & (column <= high)
            inside = here if inside is None else inside & here
    return inside
