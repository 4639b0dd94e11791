"""Cells of a grid in an order in which near cells are near: blocks of tokens are boxes of cells.

The last bits of the coordinates take turns: of an image, 256 tokens in a row are 16×16 pixels, 64
of them 8×8. The pairs of a product of patterns are then known block by block from its axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.blocks import Blocks
from edgewise.layouts.ragged import Bools, Ints, pointer
from edgewise.layouts.rows import Rows, rows_of_pairs
from edgewise.layouts.tiling import FULL, Intervals, tile_rows

LARGEST_BITS = 8  # blocks of up to 256 tokens are boxes
Numbers = TypeVar("Numbers", Tensor, Ints)


def coordinates(token: Numbers, sizes: Sequence[int]) -> list[Numbers]:
    """The coordinates of tokens that are numbered row by row."""
    found: list[Numbers] = []
    for size in reversed(sizes):
        found.append(token % size)
        token = token // size
    return found[::-1]


def pairs_of(axes: Sequence[Rows]) -> tuple[Ints, Ints]:
    """The pairs of cells whose coordinates are pairs of every axis."""
    i = j = np.zeros(1, np.int64)
    for rows in axes:
        a, b = rows.edges().numpy()
        i, j = ((x[:, None] * rows.n + y).ravel() for x, y in ((i, a), (j, b)))
    return i, j


@dataclass(frozen=True)
class BoxOrder:
    """An order of the cells of a grid of `sizes`, of which the last may be beyond it.

    `turns[k]` is the axis of bit k of a place: blocks of 2ᵏ tokens are boxes.
    """

    sizes: tuple[int, ...]

    @cached_property
    def turns(self) -> tuple[int, ...]:
        free = [(size - 1).bit_length() for size in self.sizes]
        found: list[int] = []
        while any(free) and len(found) < LARGEST_BITS:
            for axis in range(len(free) - 1, -1, -1):
                if free[axis] and len(found) < LARGEST_BITS:
                    free[axis] -= 1
                    found.append(axis)
        return tuple(found)

    def box(self, bits: int) -> list[int]:
        """The sizes of the box of 2^bits tokens."""
        return [1 << self.turns[:bits].count(axis) for axis in range(len(self.sizes))]

    @cached_property
    def boxes(self) -> list[int]:
        """How many of the largest boxes there are on each axis."""
        largest = self.box(LARGEST_BITS)
        return [-(-size // box) for size, box in zip(self.sizes, largest, strict=True)]

    @property
    def tokens(self) -> int:
        return prod(self.boxes) << len(self.turns)

    def place(self, cells: Sequence[Ints]) -> Ints:
        """The place of the cells with these coordinates."""
        out = np.zeros((), np.int64)
        for cell, box, count in zip(cells, self.box(LARGEST_BITS), self.boxes, strict=True):
            out = out * count + cell // box
        out = out << len(self.turns)
        taken = [0] * len(self.sizes)
        for bit, axis in enumerate(self.turns):
            out = out | (cells[axis] >> taken[axis] & 1) << bit
            taken[axis] += 1
        return out

    @cached_property
    def places(self) -> Ints:
        """The place of every token of the grid."""
        return self.place(coordinates(np.arange(prod(self.sizes)), self.sizes))

    @cached_property
    def at(self) -> Ints:
        """The token of every place; 0 beyond the grid."""
        out = np.zeros(self.tokens, np.int64)
        out[self.places] = np.arange(len(self.places))
        return out


@dataclass(frozen=True, eq=False)
class BoxCells:
    """The pairs of a product of patterns, in the order of boxes: `axes` has the rows of each."""

    order: BoxOrder
    axes: list[Rows]

    def count(self) -> int:
        return prod(axis.count() for axis in self.axes)

    def degrees(self) -> Ints:
        found = np.ones(1, np.int64)
        for axis in self.axes:
            found = (found[:, None] * axis.degrees()).ravel()
        out = np.zeros(self.order.tokens, np.int64)
        out[self.order.places] = found
        return out

    def tiling(self, block: int) -> BoxTiling:
        return BoxTiling(self.order, self.axes, block)

    def pairs_in(self, block: int) -> Ints:
        """How many pairs each block has."""
        found = self.tiling(block)
        row, column, kinds = found.listed()
        sizes = np.append(found.masks.sum((1, 2)), block * block)
        table = np.zeros(found.shape, np.int64)
        table[row, column] = sizes[kinds]
        return table

    def blocks(self, block: int) -> Blocks:
        found = self.tiling(block)
        row, column, kinds = found.listed()
        order = np.lexsort((column, row))
        ptr = pointer(np.bincount(row, minlength=found.shape[0]))
        arrays = ptr.astype(np.int32), column[order].astype(np.int32), kinds[order] == FULL
        n = self.order.tokens
        return Blocks(n, n, block, *map(torch.from_numpy, arrays))

    def rows(self) -> Rows:
        """The normal form, pair by pair."""
        n, places = self.order.tokens, self.order.places
        i, j = pairs_of(self.axes)
        return rows_of_pairs(n, n, places[i], places[j])


@dataclass(frozen=True, eq=False)
class BoxTiling:
    """The blocks of a product of patterns: a block is full if it is on every axis, and its kind
    is one for each combination of the kinds on the axes. As `Tiling`."""

    order: BoxOrder
    axes: list[Rows]
    block: int

    @property
    def _level(self) -> int:
        """The logarithm of the number of tokens of a block."""
        return self.block.bit_length() - 1

    @property
    def shape(self) -> tuple[int, int]:
        return (-(-self.order.tokens // self.block),) * 2

    @property
    def count(self) -> int:
        return len(self._listed[0])

    @cached_property
    def _tiles(self) -> list[tuple[tuple[Ints, Ints, Ints], Bools]]:
        """The blocks of each axis, and the masks of their kinds."""
        found = []
        for rows, size in zip(self.axes, self.order.box(self._level), strict=True):
            tiling = tile_rows(rows, size)
            (row, column, kind), masks = tiling.listed(), tiling.masks
            if len(masks):  # kinds that are clipped differently may have the same pairs
                masks, same = np.unique(masks, axis=0, return_inverse=True)
                kind = np.where(kind == FULL, FULL, same.ravel()[kind])
            found.append(((row, column, kind), masks))
        return found

    @cached_property
    def _listed(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The row, the column and the kind of each block, and the code of each kind."""
        box = self.order.box(self._level)
        rows: list[Ints] = []
        columns: list[Ints] = []
        code = np.zeros(1, np.int64)
        for ((row, column, kind), masks), size in zip(self._tiles, box, strict=True):
            wide, many = len(code), len(row)
            rows = [np.repeat(x, many) for x in rows] + [np.tile(row * size, wide)]
            columns = [np.repeat(x, many) for x in columns] + [np.tile(column * size, wide)]
            code = (code[:, None] * (len(masks) + 1) + kind + 1).ravel()
        codes, kinds = np.unique(code, return_inverse=True)
        # 0 is the code of what is full on every axis; a block larger than the grid is not full
        full = int(len(codes) > 0 and codes[0] == 0 and self._level <= len(self.order.turns))
        row, column = (self.order.place(x) >> self._level for x in (rows, columns))
        return row, column, np.where(kinds < full, FULL, kinds - full), codes[full:]

    def listed(self) -> tuple[Ints, Ints, Ints]:
        return self._listed[:3]

    @cached_property
    def masks(self) -> Bools:
        """(kinds, block, block)."""
        code = self._listed[3]
        found = np.ones((len(code), self.block, self.block), bool)
        cells = self._cells()
        for axis in range(len(self.axes) - 1, -1, -1):
            masks, at = self._tiles[axis][1], cells[axis]
            code, kind = np.divmod(code, len(masks) + 1)
            some = np.flatnonzero(kind)
            found[some] &= masks[kind[some] - 1][:, at][:, :, at]
        found[:, self.order.tokens :], found[:, :, self.order.tokens :] = False, False
        return found

    def _cells(self) -> list[Ints]:
        """The coordinates in a block of its tokens."""
        cells = [np.zeros(self.block, np.int64) for _ in self.axes]
        taken = [0] * len(self.axes)
        for bit, axis in enumerate(self.order.turns[: self._level]):
            cells[axis] |= (np.arange(self.block) >> bit & 1) << taken[axis]
            taken[axis] += 1
        return cells

    @property
    def kinds(self) -> tuple[Ints, Intervals]:
        """The kind of each block that is not full, and the intervals of every kind."""
        kinds, masks = self._listed[2], self.masks
        line, at = np.nonzero(np.diff(masks.reshape(-1, self.block), axis=1, prepend=0, append=0))
        low, high = at[::2], at[1::2]
        return kinds[kinds != FULL], Intervals(self.block, len(masks), line[::2], low, high)

    def bits(self) -> np.ndarray[Any, Any]:
        """(kinds, block), for blocks of 32 or 64: bit j of a number is key j of its query."""
        masks = self.masks if len(self.masks) else np.zeros((1, self.block, self.block), bool)
        packed = np.packbits(masks, axis=2, bitorder="little")
        wide = np.zeros((*packed.shape[:2], 8), np.uint8)
        wide[..., : packed.shape[2]] = packed
        return wide.view(np.int64)[..., 0]
