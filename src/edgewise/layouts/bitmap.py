"""Pairs as bits: of masks that have no short normal form, where runs of keys are one or two long.

Bits are found block by block: `certain` blocks have all pairs, those that are not `possible` none,
and in the others every pair is tested, a slab of queries at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.layouts.blocks import Blocks
from edgewise.layouts.ragged import Bools, Ints, pointer
from edgewise.layouts.rows import Rows, row_by_row
from edgewise.layouts.tiling import FULL

SLAB = 128  # queries that are tested together, and the side of blocks that are looked at first
WORD = 32  # keys of a word
STORED = 1 << 30  # pairs whose bits stay in memory
COUNT = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1).astype(np.uint8)

Words = NDArray[np.uint32]
Test = Callable[[int, int, Ints], Bools]  # of queries first ≤ i < last and some keys


class Bitmap:
    """Bits of n×m pairs, 32 keys in a word; those of more than `STORED` are computed again when
    they are read."""

    def __init__(self, n: int, m: int, test: Test, possible: Bools, certain: Bools) -> None:
        self.n, self.m, self.test = n, m, test
        self.width = 2 * -(-m // (2 * WORD))  # words of a query
        self.possible, self.certain = possible, certain
        height = -(-n // WORD)
        self.each = np.zeros((height, self.width), np.uint16)  # pairs of blocks of 32
        self.degree = np.zeros(n, np.int64)
        self.stored = np.zeros((n, self.width), np.uint32) if n * m <= STORED else None
        for top in range(0, n, SLAB):
            words = self._slab(top)
            some = np.flatnonzero(np.repeat(possible[top // SLAB], SLAB // WORD)[: self.width])
            near = np.ascontiguousarray(words[:, some]).view(np.uint8)
            bits = COUNT[near].reshape(len(words), len(some), 4).sum(2, dtype=np.uint16)
            self.degree[top : top + SLAB] = bits.sum(1)
            starts = np.arange(0, len(words), WORD)
            counts = np.add.reduceat(bits, starts)
            self.each[top // WORD : top // WORD + len(starts), some] = counts
            if self.stored is not None:
                self.stored[top : top + SLAB] = words

    def count(self) -> int:
        return int(self.degree.sum())

    def degrees(self) -> Ints:
        return self.degree

    def _slab(self, top: int) -> Words:
        """The words of the queries of a slab."""
        bottom, row = min(top + SLAB, self.n), top // SLAB
        per = SLAB // WORD
        words = np.zeros((bottom - top, self.width), np.uint32)
        every = np.repeat(self.certain[row], per)[: self.width]
        words[:, np.flatnonzero(every)] = 0xFFFFFFFF
        some = np.repeat(self.possible[row] & ~self.certain[row], per)[: self.width]
        columns = np.flatnonzero(some)
        if len(columns):
            words[:, columns] = self._tested(top, bottom, columns)
        return self._inside(words)

    def _inside(self, words: Words) -> Words:
        """Without keys beyond the last."""
        last, rest = divmod(self.m, WORD)
        words[:, last + (rest > 0) :] = 0
        if rest:
            words[:, last] &= (1 << rest) - 1
        return words

    def _tested(self, top: int, bottom: int, columns: Ints) -> Words:
        keys = (columns[:, None] * WORD + np.arange(WORD)).ravel()
        found = self.test(top, bottom, np.minimum(keys, self.m - 1))
        packed = np.packbits(np.ascontiguousarray(found), axis=1, bitorder="little")
        return np.ascontiguousarray(packed).view("<u4")

    def words(self, top: int, bottom: int) -> Words:
        """The words of some queries."""
        if self.stored is not None:
            return self.stored[top:bottom]
        first = top // SLAB * SLAB
        found = np.concatenate([self._slab(at) for at in range(first, bottom, SLAB)])
        return found[top - first : bottom - first]

    def rows(self) -> Rows:
        """The normal form, which may be long."""
        parts = []
        for top in range(0, self.n, SLAB):
            words = self.words(top, min(top + SLAB, self.n))
            bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
            edge = np.zeros((len(words), bits.shape[1] + 2), np.int8)
            edge[:, 1:-1] = bits
            change = np.diff(edge, axis=1)
            row, start = np.nonzero(change == 1)
            parts.append((np.bincount(row, minlength=len(words)), start, np.nonzero(change < 0)[1]))
        count, start, stop = (np.concatenate(part) for part in zip(*parts, strict=True))
        return row_by_row(self.n, self.m, pointer(count), start, stop)

    def pairs_in(self, block: int) -> Ints:
        """How many pairs each block of `block` has, a multiple of 32."""
        by = block // WORD
        found = self.each.astype(np.int64)
        height, width = (-(-size // by) * by for size in found.shape)
        found = np.pad(found, [(0, height - found.shape[0]), (0, width - found.shape[1])])
        found = found.reshape(height // by, by, width // by, by).sum((1, 3))
        return found[:, : -(-self.m // block)]

    def tiling(self, block: int) -> BitTiling:
        return BitTiling(self, block)

    def blocks(self, block: int) -> Blocks:
        found = self.pairs_in(block)
        row, column = np.nonzero(found)
        ptr = pointer(np.bincount(row, minlength=len(found)))
        full = torch.from_numpy(found[row, column] == block * block)
        index = torch.from_numpy(column.astype(np.int32))
        return Blocks(self.n, self.m, block, torch.from_numpy(ptr.astype(np.int32)), index, full)


@dataclass(frozen=True, eq=False)
class BitTiling:
    """Blocks of a bitmap that are full, or partial: each of these is a kind of its own."""

    bitmap: Bitmap
    block: int

    @cached_property
    def _pairs(self) -> Ints:
        return self.bitmap.pairs_in(self.block)

    @property
    def shape(self) -> tuple[int, int]:
        return self._pairs.shape[0], self._pairs.shape[1]

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self._pairs))

    @cached_property
    def partial(self) -> tuple[Ints, Ints]:
        """The row and the column of each kind."""
        row, column = np.nonzero((self._pairs > 0) & (self._pairs < self.block**2))
        return row, column

    def listed(self) -> tuple[Ints, Ints, Ints]:
        """As `Tiling.listed`."""
        row, column = np.nonzero(self._pairs == self.block**2)
        kinds = np.concatenate([np.full(len(row), FULL), np.arange(len(self.partial[0]))])
        return (
            np.concatenate([row, self.partial[0]]),
            np.concatenate([column, self.partial[1]]),
            kinds,
        )

    def masks_of(self, kinds: Tensor) -> Tensor:
        """(kinds, block, block), where FULL has all pairs."""
        found = np.ones((len(kinds), self.block, self.block), bool)
        some = np.flatnonzero(kinds.numpy() != FULL)
        row, column = (x[kinds.numpy()[some]] for x in self.partial)
        for one in np.unique(row):
            here = some[row == one]
            words = self._words(int(one), column[row == one])
            bits = np.unpackbits(words.view(np.uint8), axis=2, bitorder="little")
            found[here] = bits.view(bool).transpose(1, 0, 2)
        return torch.from_numpy(found)

    def _words(self, row: int, columns: Ints) -> Words:
        """(block, columns, words of a block), zeros beyond the last query."""
        by = self.block // WORD
        top = row * self.block
        words = self.bitmap.words(top, min(top + self.block, self.bitmap.n))
        wide = -(-words.shape[1] // by) * by
        words = np.pad(words, [(0, self.block - len(words)), (0, wide - words.shape[1])])
        return np.ascontiguousarray(words.reshape(self.block, -1, by)[:, columns])

    def bits(self) -> NDArray[Any]:
        """(kinds, block), for blocks of 32 or 64: bit j of a number is key j of its query."""
        row, column = self.partial
        out = np.zeros((max(len(row), 1), self.block), np.int64)
        ends = np.searchsorted(row, np.arange(self.shape[0] + 1))
        for one in range(self.shape[0]):
            words = self._words(one, column[ends[one] : ends[one + 1]]).astype(np.int64)
            numbers = words[..., 0] | (words[..., 1] << 32 if self.block > WORD else 0)
            out[ends[one] : ends[one + 1]] = numbers.T
        return out
