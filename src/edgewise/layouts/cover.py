"""From rows to blocks by arithmetic on whole slabs: time and memory O(slabs + blocks)."""

from dataclasses import dataclass

import numpy as np
import torch

from edgewise.layouts.blocks import Blocks
from edgewise.layouts.pieces import Pieces, in_slabs
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges
from edgewise.layouts.rows import Rows


@dataclass(frozen=True)
class Stretches:
    """Runs of neighbouring blocks: block row, first and last + 1 key block, pairs in each block."""

    row: Ints
    low: Ints
    high: Ints
    pairs: Ints


def blocks_of_rows(rows: Rows, block: int) -> Blocks:
    """The non-empty blocks of the pairs."""
    height, width = -(-rows.n // block), -(-rows.m // block)
    borders = np.minimum(np.arange(height + 1) * block, rows.n)
    _, row, runs = in_slabs(rows.pieces(), borders)
    short = runs.step <= block
    found = _overlaid(_stretches(row[short], runs[short], block), width)
    step = runs.step > 1
    full = found.pairs == block * block
    keys = _keys_apart(row[~short], runs[~short], block, width)
    count = np.bincount(found.row, found.high - found.low, minlength=height).astype(np.int64)
    length = found.high - found.low
    index = ranges(found.low, length).astype(np.int32)
    flags = np.repeat(full, length)
    if len(keys):
        key = owners(pointer(count)) * width + index
        every = np.union1d(key, keys)
        flags = _flags_at(every, key, flags)
        index, count = (
            (every % width).astype(np.int32),
            np.bincount(every // width, minlength=height),
        )
    if step.any():
        key = owners(pointer(count)) * width + index
        flags = _refined(key, flags, (row, runs), block, width)
    ptr = torch.from_numpy(pointer(count).astype(np.int32))
    return Blocks(rows.n, rows.m, block, ptr, torch.from_numpy(index), torch.from_numpy(flags))


def _stretches(row: Ints, p: Pieces, block: int) -> Stretches:
    """Each run as its first block columns, its solid middle and its last ones.

    Only the edges of a run need counting: in the middle every one of its rows is complete.
    """
    height = p.bottom - p.top
    low, high = p.start // block, (p.stop + p.dstop * (height - 1) - 1) // block + 1
    solid = p.step == 1
    middle = np.clip(-(-(p.start + p.dstart * (height - 1)) // block), low, high)
    end = np.clip(p.stop // block, middle, high)
    middle, end = np.where(solid, middle, low), np.where(solid, end, high)
    inner = Stretches(row, middle, end, np.where(solid, height * block, 0))
    edges = [_edge(row, p, low, middle, block), _edge(row, p, end, high, block)]
    parts = [inner, *edges]
    return Stretches(
        *(np.concatenate([getattr(s, f) for s in parts]) for f in Stretches.__match_args__)
    )


def _edge(row: Ints, p: Pieces, low: Ints, high: Ints, block: int) -> Stretches:
    """The blocks low ≤ c < high of each run one by one, with their pairs."""
    which = np.repeat(np.arange(len(p)), high - low)
    column = ranges(low, high - low)
    pairs = pairs_in(p[which], column, block)
    return Stretches(row[which], column, column + 1, pairs)


def pairs_in(p: Pieces, column: Ints, block: int) -> Ints:
    """How many pairs each piece has in its block column."""
    below = pairs_below(p, (column + 1) * block)
    return below - pairs_below(p, column * block)


def pairs_below(p: Pieces, x: Ints) -> Ints:
    """How many pairs (i, j) of each piece have j < x."""
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


def _overlaid(s: Stretches, width: int) -> Stretches:
    """Disjoint stretches in order, with the pairs of all that lie over them added up."""
    some = s.low < s.high
    row, low, high, pairs = s.row[some], s.low[some], s.high[some], s.pairs[some]
    key = np.concatenate([row * (width + 1) + low, row * (width + 1) + high])
    ends, place = np.unique(key, return_inverse=True)
    weight, one = np.concatenate([pairs, -pairs]), np.repeat([1, -1], len(row))
    # float64 sums of integers below 2^53 are exact
    total = np.cumsum(np.bincount(place, weight, minlength=len(ends)).astype(np.int64))
    depth = np.cumsum(np.bincount(place, one, minlength=len(ends)).astype(np.int64))
    kept = np.flatnonzero(depth > 0)
    at = ends % (width + 1)
    return Stretches(
        ends[kept] // (width + 1), at[kept], at[np.minimum(kept + 1, len(at) - 1)], total[kept]
    )


def _keys_apart(row: Ints, p: Pieces, block: int, width: int) -> Ints:
    """The blocks of progressions whose step exceeds a block, key by key."""
    count = (p.stop - p.start - 1) // p.step + 1
    column = ranges(p.start, count, p.step)
    slide = np.repeat((p.bottom - p.top - 1) * p.dstart, count)
    first, last = column // block, (column + slide) // block
    return ranges(np.repeat(row, count) * width + first, last - first + 1)


def _flags_at(every: Ints, key: Ints, flags: Bools) -> Bools:
    out = np.zeros(len(every), bool)
    out[np.searchsorted(every, key)] = flags
    return out


def _refined(key: Ints, flags: Bools, runs: tuple[Ints, Pieces], block: int, width: int) -> Bools:
    """Flags with progressions counted too, exactly, where together they could fill a block."""
    row, p = runs
    height = p.bottom - p.top
    rows = int(row.max(initial=-1)) + 1
    most = np.where(p.step > 1, height * (-(-block // p.step)), height * block)
    possible = np.bincount(row, most, minlength=rows) >= block * block
    candidates = np.flatnonzero(possible[key // width] & ~flags)
    order = np.argsort(row, kind="stable")
    ptr = np.searchsorted(row[order], np.arange(rows + 1))
    chunk = max(1, 1 << 22 >> int(np.diff(ptr).max(initial=1)).bit_length())
    flags = flags.copy()
    for a in range(0, len(candidates), chunk):
        some = candidates[a : a + chunk]
        r, c = key[some] // width, key[some] % width
        count = np.diff(ptr)[r]
        piece = order[ranges(ptr[r], count)]
        pairs = pairs_in(p[piece], np.repeat(c, count), block)
        total = np.bincount(np.repeat(np.arange(len(some)), count), pairs, minlength=len(some))
        flags[some] = total == block * block
    return flags
