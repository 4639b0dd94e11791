"""Blocks: which block×block tiles of the mask are non-empty, and which are full.

They are computed from rows by arithmetic on slabs, in time and memory O(slabs + blocks).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges, starts_of_runs
from edgewise.layouts.rows import Rows
from edgewise.layouts.trapezoid import Trapezoids, in_slabs

CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class Blocks:
    """The non-empty blocks as CSR over block rows.

    Block row r has the key blocks index[ptr[r]:ptr[r+1]], ascending; `full` is True where
    all block·block pairs are in the set (never for a block cut by the border).
    """

    n: int
    m: int
    block: int
    ptr: Tensor
    index: Tensor
    full: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """How many block rows and block columns there are."""
        return -(-self.n // self.block), -(-self.m // self.block)

    @property
    def count(self) -> int:
        return len(self.index)

    @property
    def density(self) -> float:
        rows, columns = self.shape
        return self.count / max(rows * columns, 1)

    @cached_property
    def row(self) -> Tensor:
        """The block row of each block."""
        rows = torch.arange(len(self.ptr) - 1, dtype=torch.int32)
        return torch.repeat_interleave(rows, self.ptr.diff())

    @cached_property
    def T(self) -> "Blocks":
        """The same blocks by columns."""
        order = torch.argsort(self.index, stable=True)
        count = torch.bincount(self.index, minlength=self.shape[1])
        ptr = torch.zeros(len(count) + 1, dtype=torch.int32)
        ptr[1:] = count.cumsum(0)
        return Blocks(self.m, self.n, self.block, ptr, self.row[order], self.full[order])

    def dense(self) -> Tensor:
        """Per block 0 (empty), 1 (partial) or 2 (full), as a small int8 matrix."""
        out = torch.zeros(self.shape, dtype=torch.int8)
        out[self.row.long(), self.index.long()] = self.full.to(torch.int8) + 1
        return out

    def to(self, device: torch.device | str) -> "Blocks":
        parts = (part.to(device) for part in (self.ptr, self.index, self.full))
        return Blocks(self.n, self.m, self.block, *parts)


@dataclass(frozen=True)
class BlockRuns:
    """Runs of neighbouring blocks: block row, first and last + 1 key block, pairs in each block."""

    row: Ints
    low: Ints
    high: Ints
    pairs: Ints


def blocks_of_rows(rows: Rows, block: int) -> Blocks:
    """The non-empty blocks of the pairs."""
    height, width = -(-rows.n // block), -(-rows.m // block)
    small, key, pairs = _small(rows, block, width)
    borders = np.minimum(np.arange(height + 1) * block, rows.n)
    _, row, runs = in_slabs(
        rows.trapezoids()[~small] if small.any() else rows.trapezoids(), borders
    )
    short = runs.step <= block
    found = _overlaid(_block_runs(row[short], runs[short], block), width)
    length = found.high - found.low
    count = np.bincount(found.row, length, minlength=height).astype(np.int64)
    index = _spread(found.low, length)
    full = np.repeat(found.pairs == block * block, length)
    far = _keys_apart(row[~short], runs[~short], block, width)
    if len(key) or len(far):
        if len(key) or len(index) or not (far[1:] > far[:-1]).all():
            solid = owners(pointer(count)) * width + index
            weight = np.repeat(found.pairs, length)
            every, total = _added((solid, weight), (far, np.zeros_like(far)), (key, pairs))
            full = total == block * block
        else:
            every, full = far, np.zeros(len(far), bool)
        opens = np.arange(height, dtype=np.int64) * width
        count = np.diff(np.append(np.searchsorted(every, opens), len(every)))
        index = (every - np.repeat(opens, count)).astype(np.int32)
    doubtful = filled_by_steps(found.row, found.pairs, (row, runs), height, block)
    if doubtful.any():
        full |= recounted((count, index), doubtful, (row, runs), block)
    ptr = torch.from_numpy(pointer(count).astype(np.int32))
    return Blocks(rows.n, rows.m, block, ptr, torch.from_numpy(index), torch.from_numpy(full))


def nonempty_blocks(rows: Rows, block: int) -> Bools:
    """Which blocks are non-empty, as a (height, width) matrix: faster for a small grid."""
    height, width = -(-rows.n // block), -(-rows.m // block)
    borders = np.minimum(np.arange(height + 1) * block, rows.n)
    _, row, runs = in_slabs(rows.trapezoids(), borders)
    short = runs.step <= block
    at, p = row[short] * (width + 1), runs[short]
    low, high = p.start // block, (p.stop + p.dstop * (p.bottom - p.top - 1) - 1) // block + 1
    size = height * (width + 1)
    ends = np.bincount(at + low, minlength=size) - np.bincount(at + high, minlength=size)
    found = (np.cumsum(ends) > 0).reshape(height, width + 1)[:, :width]
    if not short.all():
        found = found.copy()
        found.reshape(-1)[_keys_apart(row[~short], runs[~short], block, width)] = True
    return found


def _small(rows: Rows, block: int, width: int) -> tuple[Bools, Ints, Ints]:
    """Trapezoids of one row inside one block, as in random graphs: their blocks and their pairs.

    Not where progressions with a step could add to them: those are counted one by one.
    """
    none = np.zeros(0, np.int64)
    if (rows.step > 1).any():
        return np.zeros(len(rows.start), bool), none, none
    column = rows.start // block
    small = (rows.height == 1)[rows.slab] & ((rows.stop - 1) // block == column)
    row = rows.top[rows.slab[small]] // block
    return small, row * width + column[small], (rows.stop - rows.start)[small]


def _added(*lists: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The keys of all lists in order, each once, with the sum of its numbers."""
    key = np.concatenate([key for key, _ in lists])
    number = np.concatenate([number for _, number in lists])
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key, kind="stable")
        key, number = key[order], number[order]
        first = starts_of_runs(key)
        key, number = key[first], np.add.reduceat(number, first)
    return key, number


def _spread(low: Ints, length: Ints) -> NDArray[np.int32]:
    """`ranges(low, length)` in half the memory: a million tokens can have 30 million blocks."""
    if len(length) and (length == length[0]).all():
        place = np.arange(int(length[0]), dtype=np.int32)
        return (low.astype(np.int32)[:, None] + place).reshape(-1)
    before = np.cumsum(length) - length
    out = np.arange(int(length.sum()), dtype=np.int32)
    out += np.repeat((low - before).astype(np.int32), length)
    return out


def _block_runs(row: Ints, p: Trapezoids, block: int) -> BlockRuns:
    """Each run as its first block columns, its solid middle and its last ones.

    Only the edges of a run need counting: in the middle every one of its rows is complete.
    """
    height = p.bottom - p.top
    low, high = p.start // block, (p.stop + p.dstop * (height - 1) - 1) // block + 1
    solid = p.step == 1
    middle = np.clip(-(-(p.start + p.dstart * (height - 1)) // block), low, high)
    end = np.clip(p.stop // block, middle, high)
    middle, end = np.where(solid, middle, low), np.where(solid, end, high)
    inner = BlockRuns(row, middle, end, np.where(solid, height * block, 0))
    edges = [_edge(row, p, low, middle, block), _edge(row, p, end, high, block)]
    parts = [inner, *edges]
    return BlockRuns(
        *(np.concatenate([getattr(s, f) for s in parts]) for f in BlockRuns.__match_args__)
    )


def _edge(row: Ints, p: Trapezoids, low: Ints, high: Ints, block: int) -> BlockRuns:
    """The blocks low ≤ c < high of each run one by one, with their pairs."""
    which = np.repeat(np.arange(len(p)), high - low)
    column = ranges(low, high - low)
    pairs = pairs_in(p[which], column, block)
    return BlockRuns(row[which], column, column + 1, pairs)


def _overlaid(s: BlockRuns, width: int) -> BlockRuns:
    """Disjoint runs in order, with the pairs of all that lie over them added up."""
    some = s.low < s.high
    row, low, high, pairs = s.row[some], s.low[some], s.high[some], s.pairs[some]
    key = np.concatenate([row * (width + 1) + low, row * (width + 1) + high])
    ends, place = np.unique(key, return_inverse=True)
    weight, one = np.concatenate([pairs, -pairs]), np.repeat([1, -1], len(row))
    # float64 sums of integers below 2^53 are exact
    total = np.cumsum(np.bincount(place, weight, minlength=len(ends)).astype(np.int64))
    depth = np.cumsum(np.bincount(place, one, minlength=len(ends)).astype(np.int64))
    covered = np.flatnonzero(depth > 0)
    at, at_row, total = ends % (width + 1), ends // (width + 1), total[covered]
    opens = np.ones(len(covered), bool)
    opens[1:] = (covered[1:] != covered[:-1] + 1) | (total[1:] != total[:-1])
    opens[1:] |= at_row[covered[1:]] != at_row[covered[:-1]]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(covered)) - 1 if len(first) else first
    return BlockRuns(
        at_row[covered[first]], at[covered[first]], at[covered[last] + 1], total[first]
    )


def _keys_apart(row: Ints, p: Trapezoids, block: int, width: int) -> Ints:
    """The blocks of progressions whose step exceeds a block, key by key.

    Neighbouring residues are taken together as one comb with wider teeth.
    """
    order = np.lexsort((p.start, p.step, row))
    row, p = row[order], p[order]
    alike = np.zeros(len(p), bool)
    alike[1:] = (p.start[1:] == p.start[:-1] + 1) & (row[1:] == row[:-1])
    for part in (p.step, p.dstart, p.top, p.bottom, p.stop - p.start):
        alike[1:] &= part[1:] == part[:-1]
    first = np.flatnonzero(~alike)
    teeth = np.diff(np.append(first, len(p)))
    row, p = row[first], p[first]
    count = (p.stop - p.start - 1) // p.step + 1
    slide = (p.bottom - p.top - 1) * p.dstart + teeth - 1
    if not (p.step % block).any():  # every tooth sits alike in its block
        low = ranges(row * width + p.start // block, count, p.step // block)
        more = (p.start % block + slide) // block
        return ranges(low, np.repeat(more + 1, count)) if more.any() else low
    column = ranges(p.start, count, p.step)
    more = (column % block + np.repeat(slide, count)) // block
    return ranges(np.repeat(row * width, count) + column // block, more + 1)


def pairs_in(p: Trapezoids, column: Ints, block: int) -> Ints:
    """How many pairs each trapezoid has in its block column."""
    below = pairs_below(p, (column + 1) * block)
    return below - pairs_below(p, column * block)


def pairs_below(p: Trapezoids, x: Ints) -> Ints:
    """How many pairs (i, j) of each trapezoid have j < x."""
    height = p.bottom - p.top
    size = (p.stop - p.start - 1) // p.step + 1
    stop = np.where(p.step > 1, p.start + size * p.step, p.stop)
    return _steps_below(x - p.start, p.dstart, height, p.step) - _steps_below(
        x - stop, p.dstop, height, p.step
    )


def _steps_below(y: Ints, slope: Ints, height: Ints, step: Ints) -> Ints:
    """Σ over t < height of ⌈max(0, y - slope·t) / step⌉."""
    flat = -(-np.maximum(y, 0) // step) * height
    return np.where(slope == 0, flat, _staircase(y, step) - _staircase(y - height, step))


def _staircase(y: Ints, step: Ints) -> Ints:
    """Σ over 1 ≤ u ≤ y of ⌈u / step⌉."""
    turns, rest = np.divmod(np.maximum(y, 0), step)
    return step * (turns * (turns + 1) // 2) + rest * (turns + 1)


def filled_by_steps(
    row: Ints, pairs: Ints, runs: tuple[Ints, Trapezoids], rows: int, block: int
) -> Bools:
    """Block rows where progressions with step > 1 could fill up a block.

    `pairs` are those of the trapezoids with step 1, over runs of blocks in block rows `row`.
    """
    of, p = runs
    most = np.where(p.step > 1, (p.bottom - p.top) * (-(-block // p.step)), 0)
    more = np.bincount(of, most, minlength=rows).astype(np.int64)
    base = np.zeros(rows, np.int64)
    partial = pairs < block * block
    np.maximum.at(base, row[partial], pairs[partial])
    return (more > 0) & (more + base >= block * block)


def recounted(
    blocks: tuple[Ints, NDArray[np.int32]], chosen: Bools, runs: tuple[Ints, Trapezoids], block: int
) -> Bools:
    """Which blocks are full, counted trapezoid by trapezoid in the chosen block rows."""
    (count, index), (row, p) = blocks, runs
    at = owners(pointer(count))
    candidates = np.flatnonzero(chosen[at])
    order = np.argsort(row, kind="stable")
    ptr = np.searchsorted(row[order], np.arange(len(count) + 1))
    full = np.zeros(len(index), bool)
    step = max(1, CHUNK // max(1, int(np.diff(ptr).max(initial=1))))
    for a in range(0, len(candidates), step):
        some = candidates[a : a + step]
        each = np.diff(ptr)[at[some]]
        which = order[ranges(ptr[at[some]], each)]
        pairs = pairs_in(p[which], np.repeat(index[some].astype(np.int64), each), block)
        total = np.bincount(np.repeat(np.arange(len(some)), each), pairs, minlength=len(some))
        full[some] = total == block * block
    return full
