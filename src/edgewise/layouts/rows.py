"""Rows: the normal form of a set of pairs."""

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, safe_repr
from edgewise.layouts.ragged import Bools, Ints, distinct, owners, pointer, ranges
from edgewise.layouts.trapezoid import Trapezoids

ARRAYS = ("top", "ptr", "start", "stop", "dstart", "dstop", "step")


class RowOutOfRange(EdgewiseError, IndexError):
    """Row i of the normal form has the keys of query i, for 0 ≤ i < n."""

    code = "row-out-of-range"
    example = "window(1).rows(4)[4]"
    instead = "window(1).rows(4)[3]"


@dataclass(frozen=True, eq=False)
class Rows:
    """Per row sorted disjoint progressions of keys; rows with affine ends form a slab.

    Slab s holds the rows top[s] ≤ i < top[s+1] and the trapezoids ptr[s] ≤ k < ptr[s+1]; with
    t = i - top[s] its row i is

        ⋃ₖ {start[k] + dstart[k]·t, ... + step[k], ... < stop[k] + dstop[k]·t}

    No trapezoid is empty in any row; slopes are 0 or 1, and equal where step > 1. `expand()` has
    one slab per row, so that ptr, start, stop and step are those of the rows themselves.
    """

    n: int
    m: int
    top: Ints
    ptr: Ints
    start: Ints
    stop: Ints
    dstart: Ints
    dstop: Ints
    step: Ints

    @property
    def height(self) -> Ints:
        return np.diff(self.top)

    @cached_property
    def slab(self) -> Ints:
        """The slab of each trapezoid."""
        return owners(self.ptr)

    @property
    def size(self) -> Ints:
        """How many keys each trapezoid has in the first row of its slab."""
        length = self.stop - self.start
        return length if (self.step == 1).all() else (length - 1) // self.step + 1

    def read_only(self) -> "Rows":
        """The same with read-only arrays, so that it can be cached."""
        arrays = {x: getattr(self, x).view() for x in ARRAYS}
        for array in arrays.values():
            array.setflags(write=False)
        return Rows(self.n, self.m, **arrays)

    def trapezoids(self) -> Trapezoids:
        top, bottom = self.top[self.slab], self.top[self.slab + 1]
        return Trapezoids(top, bottom, self.start, self.stop, self.dstart, self.dstop, self.step)

    def count(self) -> int:
        """The number of pairs."""
        return self._count

    @cached_property
    def _count(self) -> int:
        if len(self.top) == self.n + 1:
            return int(self.size.sum())
        height = self.height[self.slab]
        growth = self.dstop - self.dstart
        return int((self.size * height + growth * (height * (height - 1) // 2)).sum())

    def degrees(self) -> Ints:
        """The number of keys of each row."""
        if len(self.top) == self.n + 1:
            return np.diff(pointer(self.size)[self.ptr])
        slabs = len(self.top) - 1
        first = np.bincount(self.slab, self.size, minlength=slabs).astype(np.int64)
        growth = np.bincount(self.slab, self.dstop - self.dstart, minlength=slabs).astype(np.int64)
        row = np.repeat(np.arange(slabs), self.height)
        return first[row] + growth[row] * (np.arange(self.n) - self.top[row])

    @property
    def is_scattered(self) -> bool:
        """True if rows have several keys, mostly not adjacent, as in random graphs."""
        return self.n < self.count() < 2 * len(self.start)

    def expand(self) -> "Rows":
        """One slab per row."""
        if len(self.top) == self.n + 1:
            return self
        slab = np.repeat(np.arange(len(self.top) - 1), self.height)
        count = np.diff(self.ptr)[slab]
        which = ranges(self.ptr[slab], count)
        down = np.repeat(np.arange(self.n) - self.top[slab], count)
        start = self.start[which] + self.dstart[which] * down
        stop = self.stop[which] + self.dstop[which] * down
        return row_by_row(self.n, self.m, pointer(count), start, stop, self.step[which])

    def between(self, first: int, last: int) -> "Rows":
        """Rows first ≤ i < last, numbered from 0."""
        a = int(np.searchsorted(self.top, first, side="right")) - 1
        b = int(np.searchsorted(self.top, last))
        if first >= last:
            a, b = 0, 0
        top = np.clip(self.top[a : b + 1], first, last)
        inside = slice(self.ptr[a], self.ptr[b])
        down: Ints = np.repeat(top[:-1] - self.top[a:b], np.diff(self.ptr[a : b + 1]))
        dstart, dstop = self.dstart[inside], self.dstop[inside]
        return Rows(
            max(last - first, 0),
            self.m,
            top - first if a < b else np.zeros(1, np.int64),
            self.ptr[a : b + 1] - self.ptr[a],
            self.start[inside] + down * dstart,
            self.stop[inside] + down * dstop,
            dstart,
            dstop,
            self.step[inside],
        )

    def shard(self, rank: int, world: int) -> "Rows":
        """The rows of rank `rank` of `world`: consecutive, as equal in number as possible."""
        return self.between(self.n * rank // world, self.n * (rank + 1) // world)

    def edges(self) -> Tensor:
        """All pairs (i, j), sorted, as a (2, e) int64 tensor."""
        rows = self.expand()
        i = np.repeat(rows.slab, rows.size)
        j = ranges(rows.start, rows.size, rows.step)
        if (rows.step > 1).any():
            key = np.sort(i * max(self.m, 1) + j)
            i, j = key // max(self.m, 1), key % max(self.m, 1)
        return torch.from_numpy(np.stack([i, j]))

    def dense(self) -> Tensor:
        """The boolean n×m matrix."""
        matrix = torch.zeros(self.n, self.m, dtype=torch.bool)
        i, j = self.edges()
        matrix[i, j] = True
        return matrix

    def same_as(self, other: "Rows") -> bool:
        """True if both have the same pairs in the same representation."""
        if (self.n, self.m, self.count()) != (other.n, other.m, other.count()):
            return False
        a, b = self.expand(), other.expand()
        parts = ("ptr", "start", "stop", "step")
        return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in parts)

    def __getitem__(self, i: int) -> list[tuple[int, int, int]]:
        """The progressions (start, stop, step) of row i."""
        if isinstance(i, bool) or not isinstance(i, Integral) or not 0 <= i < self.n:
            help = "give an integer from 0, below the number of rows"
            raise RowOutOfRange(f"{safe_repr(i)} is not one of {self.n} rows", caller(), help)
        row = self.between(i, i + 1)
        return list(zip(row.start.tolist(), row.stop.tolist(), row.step.tolist(), strict=True))


def row_by_row(
    n: int, m: int, ptr: Ints, start: Ints, stop: Ints, step: Ints | None = None
) -> Rows:
    """Rows of one slab each: row i has the progressions ptr[i] to ptr[i+1]."""
    flat, one = (np.broadcast_to(np.int64(x), len(start)) for x in (0, 1))
    return Rows(n, m, np.arange(n + 1), ptr, start, stop, flat, flat, one if step is None else step)


def rows_of_keys(n: int, m: int, ptr: Ints, keys: Ints) -> Rows:
    """Rows from CSR: sorted distinct keys per row; runs of consecutive keys become one."""
    opens = np.ones(len(keys) + 1, bool)
    opens[1:-1] = keys[1:] != keys[:-1] + 1
    opens[ptr] = True
    places = np.flatnonzero(opens)
    start = keys
    if len(places) <= len(keys):
        small = np.int32 if len(keys) < 2**31 else np.int64  # much faster
        ptr = np.cumsum(opens, dtype=small)[ptr].astype(np.int64) - 1
        start = keys[places[:-1]]
    stop = np.diff(places)
    stop += start
    return row_by_row(n, m, ptr, start, stop)


def rows_of_blocks(n: int, m: int, block: int, ptr: Ints, columns: Ints) -> Rows:
    """Rows of blocks, sorted and distinct in every block row; the last may be clipped."""
    coarse = rows_of_keys(len(ptr) - 1, m, ptr, columns)
    top, start, stop = (
        np.minimum(x * block, most)
        for x, most in ((coarse.top, n), (coarse.start, m), (coarse.stop, m))
    )
    return replace(coarse, n=n, top=top, start=start, stop=stop)


def with_pairs(rows: Rows, i: Ints, j: Ints) -> Rows:
    """Rows without steps, and pairs that they do not have."""
    wide, width = rows.expand(), max(rows.m, 1)
    key = np.concatenate([wide.slab * width + wide.start, i * width + j])
    order = np.argsort(key, kind="stable")
    row, start = np.divmod(key[order], width)
    stop = np.concatenate([wide.stop, j + 1])[order]
    opens = np.ones(len(row), bool)
    opens[1:] = (start[1:] != stop[:-1]) | (row[1:] != row[:-1])
    first = np.flatnonzero(opens)
    stop = stop[np.append(first[1:], len(row)) - 1] if len(row) else stop
    ptr = pointer(np.bincount(row[first], minlength=rows.n))
    return row_by_row(rows.n, rows.m, ptr, start[first], stop)


def rows_of_pairs(n: int, m: int, i: Ints, j: Ints) -> Rows:
    """Rows of pairs in any order, repeated or not."""
    key = distinct(i * max(m, 1) + j)
    row = key // max(m, 1)
    return rows_of_keys(n, m, pointer(np.bincount(row, minlength=n)), key % max(m, 1))


def compressed(rows: Rows) -> Rows:
    """The same rows, slabs merged where each trapezoid of one continues in the next."""
    if len(rows.top) < 3:
        return rows
    count = np.diff(rows.ptr)
    tall = (rows.height > 1)[rows.slab]
    slot = np.flatnonzero(np.append(count[1:] == count[:-1], False)[rows.slab])
    below = slot + count[rows.slab[slot]]
    moves = _moves(rows, slot, below, tall)
    linked = _linked(rows, count, slot, below, moves)
    if not linked.any():
        return rows
    first = np.flatnonzero(np.concatenate([[True], ~linked]))
    inside = ranges(rows.ptr[first], count[first])
    free = np.append(linked, False)[rows.slab[inside]] & ~tall[inside]
    dstart = np.where(free, moves[0, inside], rows.dstart[inside])
    dstop = np.where(free, moves[1, inside], rows.dstop[inside])
    top, ptr = np.append(rows.top[first], rows.n), pointer(count[first])
    start, stop, step = rows.start[inside], rows.stop[inside], rows.step[inside]
    return Rows(rows.n, rows.m, top, ptr, start, stop, dstart, dstop, step)


def _moves(rows: Rows, slot: Ints, below: Ints, tall: Bools) -> Ints:
    """How each trapezoid steps from the last row of its slab to the next slab; -1: it ends."""
    down = rows.height[rows.slab[slot]] - 1
    moves = np.full((2, len(rows.start)), -1)
    fine = rows.step[slot] == rows.step[below]
    for k, (end, slope) in enumerate(((rows.start, rows.dstart), (rows.stop, rows.dstop))):
        move = end[below] - end[slot] - slope[slot] * down
        fine &= (move >= 0) & (move <= 1)
        fine &= (~tall[slot] | (move == slope[slot])) & (~tall[below] | (move == slope[below]))
        moves[k, slot] = move
    fine &= (rows.step[slot] == 1) | (moves[0, slot] == moves[1, slot])
    moves[:, slot[~fine]] = -1
    return moves


def _linked(rows: Rows, count: Ints, slot: Ints, below: Ints, moves: Ints) -> Bools:
    """Which of the slabs 1, 2, ... continue the slab before them."""
    slabs = len(count)
    bad = np.bincount(rows.slab[slot[moves[0, slot] < 0]], minlength=slabs) > 0
    linked = (count[1:] == count[:-1]) & ~bad[:-1]
    # Three slabs in a row become one only if the trapezoids step alike both times.
    turned = (moves[:, below] >= 0).all(axis=0) & (moves[:, below] != moves[:, slot]).any(axis=0)
    turns = np.bincount(rows.slab[below[turned]], minlength=slabs) > 0
    linked[1:] &= ~(turns[1:-1] & linked[:-1])
    return linked


@dataclass(frozen=True, eq=False)
class CSR:
    """Row i has the keys index[ptr[i]:ptr[i+1]], ascending."""

    n: int
    m: int
    ptr: Tensor
    index: Tensor

    @property
    def row(self) -> Tensor:
        """The row of each key."""
        return torch.repeat_interleave(torch.arange(self.n, dtype=torch.int32), self.ptr.diff())

    @property
    def T(self) -> "CSR":
        """The same pairs by columns; `order` of the sort is `argsort(index, stable=True)`."""
        order = torch.argsort(self.index, stable=True)
        count = torch.bincount(self.index, minlength=self.m).numpy()
        ptr = torch.from_numpy(pointer(count)).to(self.ptr.dtype)
        return CSR(self.m, self.n, ptr, self.row[order])

    def rows(self) -> Rows:
        ptr, index = self.ptr.numpy().astype(np.int64), self.index.numpy().astype(np.int64)
        return rows_of_keys(self.n, self.m, ptr, index)


def _keys(wide: Rows, ends: Ints) -> Ints:
    """The keys of runs with step 1, `ends` the cumulated sizes."""
    count = len(wide.start)
    if ends[-1] > 2 * count:
        return ranges(wide.start, np.diff(ends))
    if ends[-1] == count:
        return wide.start
    size = np.diff(ends)  # most are one key
    out, long = np.repeat(wide.start, size), np.flatnonzero(size > 1)
    out[ranges(ends[long], size[long])] += ranges(np.zeros(len(long), np.int64), size[long])
    return out


def csr_of_rows(rows: Rows) -> CSR:
    """Every pair of the rows; int32, as kernels read it."""
    if (rows.step > 1).any():
        ptr, keys = pointer(rows.degrees()), rows.edges()[1].numpy()
    else:
        wide = rows.expand()
        ends = pointer(wide.stop - wide.start)
        ptr, keys = ends[wide.ptr], _keys(wide, ends)
    small = np.int32 if ptr[-1] < 2**31 else np.int64
    index = torch.from_numpy(keys.astype(np.int32))
    return CSR(rows.n, rows.m, torch.from_numpy(ptr.astype(small)), index)
