"""Rows as blocks that are full or of one of a few kinds, found by comparing trapezoids.

Blocks that look alike are of one kind however far apart they are, so a window has two or three
kinds at any length, and no pair is looked at.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgewise.layouts.ragged import Bools, Ints, distinct_rows, ranges, starts_of_runs
from edgewise.layouts.rows import Rows

FULL = -1
AT_ONCE = 256  # masks that are drawn at a time


@dataclass(frozen=True, eq=False)
class Runs:
    """Pieces cut at the borders of block rows: tops and bottoms as seen from there."""

    row: Ints
    top: Ints
    bottom: Ints
    start: Ints
    stop: Ints
    dstart: Ints
    dstop: Ints
    step: Ints


@dataclass(frozen=True, eq=False)
class Tiling:
    """Block row row[k] has the full blocks first[k] ≤ c < last[k]; other blocks are r·width + c
    in `keys`, of the kinds `kinds`. Kinds of as many trapezoids are a table each of `lines`."""

    block: int
    shape: tuple[int, int]
    row: Ints
    first: Ints
    last: Ints
    keys: Ints
    kinds: Ints
    lines: tuple[np.ndarray, ...]

    @property
    def count(self) -> int:
        return int((self.last - self.first).sum()) + len(self.keys)

    @cached_property
    def masks(self) -> np.ndarray:
        """(kinds, block, block); those of a kind that is full in the end are all true."""
        parts = [np.zeros((0, self.block, self.block), bool)]
        for table in self.lines:
            for at in range(0, len(table), AT_ONCE):
                parts.append(_drawn(table[at : at + AT_ONCE], self.block))
        return np.concatenate(parts)

    def listed(self) -> tuple[Ints, Ints, Ints]:
        """The row, the column and the kind (FULL, or the number of its mask) of each block."""
        count = self.last - self.first
        row, column = np.divmod(self.keys, max(self.shape[1], 1))
        full: Bools = np.all(self.masks, axis=(1, 2))
        kinds = np.where(full, FULL, np.arange(len(full)))[self.kinds]
        return (
            np.concatenate([np.repeat(self.row, count), row]),
            np.concatenate([ranges(self.first, count), column]),
            np.concatenate([np.full(int(count.sum()), FULL), kinds]),
        )


def tiling(rows: Rows, block: int) -> Tiling:
    height, width = -(-rows.n // block), -(-rows.m // block)
    runs = _runs(rows, block)
    tall = runs.bottom - runs.top
    low, last = runs.start // block, runs.stop + runs.dstop * (tall - 1) - 1
    high = last // block + 1
    whole = (tall == block) & (runs.step == 1)
    first = -(-(runs.start + runs.dstart * (block - 1)) // block)
    first = np.where(whole, np.minimum(first, high), high)  # from `low` on: slopes are not negative
    end = np.maximum(np.where(whole, runs.stop // block, high), first)
    which, column = _edges(runs, (low, first, end, high), block)
    table = _described(runs, which, column, block)
    key = runs.row[which] * width + column
    order = np.lexsort((table[2], table[0], key))
    key, table = key[order], table[:, order]
    opens = starts_of_runs(key)
    kinds, lines = _kinds(table, opens)
    some = first < end
    full = runs.row[some], first[some], end[some]
    return Tiling(block, (height, width), *full, key[opens], kinds, lines)


def _runs(rows: Rows, block: int) -> Runs:
    height = np.diff(rows.ptr)
    top, bottom = np.repeat(rows.top[:-1], height), np.repeat(rows.top[1:], height)
    above = top // block
    count = (bottom - 1) // block + 1 - above
    which, row = np.repeat(np.arange(len(top)), count), ranges(above, count)
    top, bottom = top[which], bottom[which]
    begins = np.maximum(row * block, top)
    down, dstart, dstop = begins - top, rows.dstart[which], rows.dstop[which]
    return Runs(
        row,
        begins - row * block,
        np.minimum(bottom - row * block, block),
        rows.start[which] + down * dstart,
        rows.stop[which] + down * dstop,
        dstart,
        dstop,
        rows.step[which],
    )


def _edges(runs: Runs, ends: tuple[Ints, ...], block: int) -> tuple[Ints, Ints]:
    """The blocks of each run that are not sure to be full: the run and the column."""
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


def _far(runs: Runs, far: Ints, block: int) -> tuple[Ints, Ints]:
    """The blocks of progressions whose step is longer than a block."""
    start, step = runs.start[far], runs.step[far]
    count = (runs.stop[far] - start - 1) // step + 1
    slide = runs.dstart[far] * (runs.bottom - runs.top - 1)[far]
    which, key = np.repeat(far, count), ranges(start, count, step)
    column, most = key // block, (key + np.repeat(slide, count)) // block
    more = most - column + 1
    which, column = np.repeat(which, more), ranges(column, more)
    wide = int(column.max(initial=0)) + 1
    return np.divmod(np.unique(which * wide + column), wide)


def _described(runs: Runs, which: Ints, column: Ints, block: int) -> np.ndarray:
    """Each run as seen from the corner of its block, the same if it looks the same there."""
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


def _kinds(table: np.ndarray, opens: Ints) -> tuple[Ints, tuple[np.ndarray, ...]]:
    """The kind of each block, and the lines of each kind, those of as many lines together."""
    known, line = distinct_rows(table.T)
    if len(opens) == len(line):
        return line, (known[:, None],)
    count = np.diff(np.append(opens, len(line)))
    kinds, out, before = np.zeros(len(opens), np.int64), [], 0
    for size in np.flatnonzero(np.bincount(count)):
        which = np.flatnonzero(count == size)
        lines = line[ranges(opens[which], count[which])].reshape(len(which), size)
        alike, kinds[which] = distinct_rows(lines)
        kinds[which] += before
        before += len(alike)
        out.append(known[alike])
    return kinds, tuple(out)


def _drawn(kinds: np.ndarray, block: int) -> Bools:
    """The masks of kinds that are as many lines each."""
    masks = np.zeros((len(kinds), block, block), bool)
    j = np.arange(block, dtype=np.int32)
    for lines in kinds.astype(np.int32).transpose(1, 2, 0):
        top, bottom, start, stop, dstart, dstop, step = lines[:, :, None]
        down = j - top
        first = (start + dstart * down)[:, :, None]
        last = np.where((down >= 0) & (j < bottom), stop + dstop * down, 0)[:, :, None]
        found = (j >= first) & (j < last)
        if (step > 1).any():
            down, by = j - first, step[:, :, None] if (step != step[0]).any() else int(step[0, 0])
            found &= down // by * by == down  # by one number is much quicker
        masks |= found
    return masks
