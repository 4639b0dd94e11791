"""Rows as blocks that are full or have one of a small number of masks.

Blocks with the same mask are found by comparing trapezoids, not pairs: a window has two or three
distinct masks at any length.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgewise.layouts.ragged import Bools, Ints, distinct, distinct_rows, ranges, starts_of_runs
from edgewise.layouts.rows import Rows
from edgewise.layouts.trapezoid import Trapezoids

FULL = -1
AT_ONCE = 1 << 12  # lines of kinds that are looked at row by row


@dataclass(frozen=True, eq=False)
class BlockRowRuns(Trapezoids):
    """Trapezoids split at block rows; `top` and `bottom` are relative to block row `row`."""

    row: Ints


@dataclass(frozen=True, eq=False)
class Intervals:
    """Row r of kind u has the keys low[k] ≤ j < high[k] for all k with line[k] = u·block + r, in
    order and none next to another."""

    block: int
    kinds: int
    line: Ints
    low: Ints
    high: Ints

    @property
    def full(self) -> Bools:
        """Which kinds are full blocks."""
        pairs = np.bincount(self.line // self.block, self.high - self.low, minlength=self.kinds)
        return pairs == self.block**2

    @property
    def masks(self) -> Bools:
        """(kinds, block, block)."""
        wide, rows = self.block + 1, self.kinds * self.block
        turns = np.zeros(rows * wide, np.int8)
        turns[self.line * wide + self.low] = 1
        turns[self.line * wide + self.high] = -1
        inside = np.cumsum(turns.reshape(rows, wide), axis=1, dtype=np.int8).view(bool)
        return inside[:, :-1].reshape(self.kinds, self.block, self.block)


@dataclass(frozen=True, eq=False)
class Tiling:
    """Block row row[k] has the full blocks first[k] ≤ c < last[k]; other blocks are r·width + c
    in `keys`, and have parts of the runs `which`, in the block columns `column`."""

    block: int
    shape: tuple[int, int]
    row: Ints
    first: Ints
    last: Ints
    runs: BlockRowRuns
    which: Ints
    column: Ints

    @cached_property
    def keys(self) -> Ints:
        return distinct(np.sort(self._place, kind="stable"))  # sorted runs

    @property
    def _place(self) -> Ints:
        return self.runs.row[self.which] * self.shape[1] + self.column

    @property
    def count(self) -> int:
        return int((self.last - self.first).sum()) + len(self.keys)

    @cached_property
    def kinds(self) -> tuple[Ints, Intervals]:
        """The kind of each of `keys`, and the intervals of every kind."""
        table = _described(self.runs, self.which, self.column, self.block)
        known, line = distinct_rows(table.T)
        place, line = np.divmod(np.sort(self._place * len(known) + line), max(len(known), 1))
        opens = starts_of_runs(place)
        if len(opens) == len(line):
            return line, _intervals(known, np.arange(len(known)), self.block)
        kinds, lines, owner = _kinds(line, opens)
        return kinds, _intervals(known[lines], owner, self.block)

    @property
    def masks(self) -> Bools:
        """(kinds, block, block)."""
        return self.kinds[1].masks

    def listed(self) -> tuple[Ints, Ints, Ints]:
        """The row, the column and the kind (FULL, or the number of its mask) of each block, those
        of one row that are full or are not in the order of columns."""
        count, (kinds, looks) = self.last - self.first, self.kinds
        row, column = np.divmod(self.keys, max(self.shape[1], 1))
        kinds = np.where(looks.full, FULL, np.arange(len(looks.full)))[kinds]
        return (
            np.concatenate([np.repeat(self.row, count), row]),
            np.concatenate([ranges(self.first, count), column]),
            np.concatenate([np.full(int(count.sum()), FULL), kinds]),
        )


def tile_rows(rows: Rows, block: int) -> Tiling:
    height, width = -(-rows.n // block), -(-rows.m // block)
    runs = _runs(rows, block)
    tall = runs.bottom - runs.top
    low, last = runs.start // block, runs.stop + runs.dstop * (tall - 1) - 1
    high = last // block + 1
    solid = (tall == block) & (runs.step == 1)
    first = -(-(runs.start + runs.dstart * (block - 1)) // block)
    first = np.where(solid, np.minimum(first, high), high)  # from `low` on: slopes are not negative
    end = np.maximum(np.where(solid, runs.stop // block, high), first)
    edges = _edges(runs, (low, first, end, high), block)
    some = first < end
    full = runs.row[some], first[some], end[some]
    return Tiling(block, (height, width), *full, runs, *edges)


def _runs(rows: Rows, block: int) -> BlockRowRuns:
    height = np.diff(rows.ptr)
    top, bottom = np.repeat(rows.top[:-1], height), np.repeat(rows.top[1:], height)
    above = top // block
    count = (bottom - 1) // block + 1 - above
    which, row = np.repeat(np.arange(len(top)), count), ranges(above, count)
    top, bottom = top[which], bottom[which]
    begins = np.maximum(row * block, top)
    down, dstart, dstop = begins - top, rows.dstart[which], rows.dstop[which]
    return BlockRowRuns(
        begins - row * block,
        np.minimum(bottom - row * block, block),
        rows.start[which] + down * dstart,
        rows.stop[which] + down * dstop,
        dstart,
        dstop,
        rows.step[which],
        row,
    )


def _edges(runs: BlockRowRuns, ends: tuple[Ints, ...], block: int) -> tuple[Ints, Ints]:
    """The blocks of each run that may be partial: the run and the column."""
    low, first, end, high = ends
    far = np.flatnonzero(runs.step > block)
    if len(far):  # it misses blocks: key by key
        first, end = first.copy(), end.copy()
        first[far], end[far] = low[far], high[far]
    every = np.arange(len(low))
    both = np.concatenate([every, every])
    start, count = np.concatenate([low, end]), np.concatenate([first - low, high - end])
    which, column = np.repeat(both, count), ranges(start, count)
    if not len(far):
        return which, column
    apart = _far(runs, far, block)
    return np.concatenate([which, apart[0]]), np.concatenate([column, apart[1]])


def _far(runs: BlockRowRuns, far: Ints, block: int) -> tuple[Ints, Ints]:
    """The blocks of progressions whose step is longer than a block."""
    start, step = runs.start[far], runs.step[far]
    count = (runs.stop[far] - start - 1) // step + 1
    slide = runs.dstart[far] * (runs.bottom - runs.top - 1)[far]
    which, key = np.repeat(far, count), ranges(start, count, step)
    column, most = key // block, (key + np.repeat(slide, count)) // block
    more = most - column + 1
    which, column = np.repeat(which, more), ranges(column, more)
    wide = int(column.max(initial=0)) + 1
    return np.divmod(distinct(which * wide + column), wide)


def _described(runs: BlockRowRuns, which: Ints, column: Ints, block: int) -> np.ndarray:
    """Each run relative to the corner of its block, in a normal form there."""
    top, bottom, step = runs.top[which], runs.bottom[which], runs.step[which]
    start, stop = runs.start[which] - column * block, runs.stop[which] - column * block
    dstart, dstop = runs.dstart[which], runs.dstop[which]
    before, after = start + dstart * (bottom - top - 1) <= 0, stop >= block
    one = step == 1
    if one.all():
        start, dstart = np.where(before, 0, start), np.where(before, 0, dstart)
    else:
        steps = start % step - -(-block // step) * step
        start = np.where(before, np.where(one, 0, steps), start)
        dstart = np.where(before & one, 0, dstart)
    stop, dstop = np.where(after, block, stop), np.where(after, 0, dstop)
    return np.stack([top, bottom, start, stop, dstart, dstop, step])


def _kinds(line: Ints, opens: Ints) -> tuple[Ints, Ints, Ints]:
    """The kind of each block, and the lines of all kinds with the kind of each."""
    count = np.diff(np.append(opens, len(line)))
    kinds, before = np.zeros(len(opens), np.int64), 0
    lines, owner = [line[:0]], [line[:0]]
    for size in np.flatnonzero(np.bincount(count)):
        which = np.flatnonzero(count == size)
        alike, back = distinct_rows(line[ranges(opens[which], count[which])].reshape(-1, size))
        kinds[which] = back + before
        lines.append(alike.ravel())
        owner.append(np.repeat(np.arange(before, before + len(alike)), size))
        before += len(alike)
    return kinds, np.concatenate(lines), np.concatenate(owner)


def _intervals(lines: Ints, owner: Ints, block: int) -> Intervals:
    """The rows of each kind, clipped to a block."""
    some = [slice(a, a + AT_ONCE) for a in range(0, max(len(lines), 1), AT_ONCE)]
    parts = [_in_block(lines[part], owner[part], block) for part in some]
    at, low, size = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
    place = at * (2 * block) + low
    if not (place[1:] > place[:-1]).all():
        order = np.argsort(place)
        at, low, size = at[order], low[order], size[order]
    high = low + size
    opens = np.ones(len(at) + 1, bool)
    opens[1:-1] = (at[1:] != at[:-1]) | (low[1:] != high[:-1])
    first = np.flatnonzero(opens)
    kinds = int(owner.max(initial=-1)) + 1
    return Intervals(block, kinds, at[first[:-1]], low[first[:-1]], high[first[1:] - 1])


def _in_block(lines: Ints, owner: Ints, block: int) -> tuple[Ints, Ints, Ints]:
    """For every row of some lines: its index among all kinds, its first key, the number of keys."""
    top, bottom, start, stop, dstart, dstop, step = lines.T[:, :, None]
    row = np.arange(block)
    down = row - top
    low = start + dstart * down
    low = low + np.maximum(-(low // step), 0) * step
    size = -((low - np.minimum(stop + dstop * down, block)) // step)
    some = np.flatnonzero((down >= 0) & (row < bottom) & (size > 0))
    at, low, size = (owner[:, None] * block + row).flat[some], low.flat[some], size.flat[some]
    if (step > 1).any():  # every key for itself
        by = np.repeat(step.ravel(), block)[some]
        many, size = np.where(by == 1, 1, size), np.where(by == 1, size, 1)
        low, at, size = ranges(low, many, by), np.repeat(at, many), np.repeat(size, many)
    return at, low, size
