"""From rows to blocks by arithmetic on whole slabs: time and memory O(slabs + blocks)."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from edgewise.layouts.blocks import Blocks
from edgewise.layouts.pieces import Pieces, in_slabs
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges, starts_of_runs
from edgewise.layouts.rows import Rows

CHUNK = 1 << 22


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
    length = found.high - found.low
    count = np.bincount(found.row, length, minlength=height).astype(np.int64)
    index, pairs = _spread(found.low, length), np.repeat(found.pairs.astype(np.int32), length)
    if not short.all():
        key = owners(pointer(count)) * width + index
        every = _merged(key, _keys_apart(row[~short], runs[~short], block, width))
        pairs = _placed(pairs, np.searchsorted(every, key), len(every))
        count = np.bincount(every // width, minlength=height)
        index = (every % width).astype(np.int32)
    full = pairs == block * block
    if (runs.step > 1).any():
        full = _refined(full, (count, index, pairs), (row, runs), block)
    ptr = torch.from_numpy(pointer(count).astype(np.int32))
    return Blocks(rows.n, rows.m, block, ptr, torch.from_numpy(index), torch.from_numpy(full))


def _spread(low: Ints, length: Ints) -> NDArray[np.int32]:
    """`ranges(low, length)` in half the memory: a million tokens can have 30 million blocks."""
    before = np.cumsum(length) - length
    out = np.arange(int(length.sum()), dtype=np.int32)
    out += np.repeat((low - before).astype(np.int32), length)
    return out


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
    at, at_row, total = ends % (width + 1), ends // (width + 1), total[kept]
    opens = np.ones(len(kept), bool)
    opens[1:] = (kept[1:] != kept[:-1] + 1) | (total[1:] != total[:-1])
    opens[1:] |= at_row[kept[1:]] != at_row[kept[:-1]]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(kept)) - 1 if len(first) else first
    return Stretches(at_row[kept[first]], at[kept[first]], at[kept[last] + 1], total[first])


def _keys_apart(row: Ints, p: Pieces, block: int, width: int) -> Ints:
    """The blocks of progressions whose step exceeds a block, key by key.

    Neighbouring residues are taken together as one comb with wider teeth.
    """
    alike = np.zeros(len(p), bool)
    alike[1:] = (p.start[1:] == p.start[:-1] + 1) & (row[1:] == row[:-1])
    for part in (p.step, p.dstart, p.top, p.bottom, p.stop - p.start):
        alike[1:] &= part[1:] == part[:-1]
    first = np.flatnonzero(~alike)
    teeth = np.diff(np.append(first, len(p)))
    row, p = row[first], p[first]
    count = (p.stop - p.start - 1) // p.step + 1
    column = ranges(p.start, count, p.step)
    slide = np.repeat((p.bottom - p.top - 1) * p.dstart + teeth - 1, count)
    low, high = column // block, (column + slide) // block
    low += np.repeat(row * width, count)
    wide = high - column // block
    return low if not wide.any() else ranges(low, wide + 1)


def _merged(a: Ints, b: Ints) -> Ints:
    """The keys of both, sorted, each once."""
    key = np.concatenate([a, b]) if len(a) else b
    if not (key[1:] > key[:-1]).all():
        key = np.sort(key, kind="stable")
        key = key[starts_of_runs(key)]
    return key


def _placed(values: NDArray[np.int32], at: Ints, size: int) -> NDArray[np.int32]:
    out = np.zeros(size, np.int32)
    out[at] = values
    return out


def _refined(
    full: Bools,
    blocks: tuple[Ints, NDArray[np.int32], NDArray[np.int32]],
    runs: tuple[Ints, Pieces],
    block: int,
) -> Bools:
    """Flags with progressions counted too, exactly, where together they could fill a block."""
    (count, index, pairs), (row, p) = blocks, runs
    rows = len(count)
    long = p.step > 1
    row, p = row[long], p[long]
    most = (p.bottom - p.top) * (-(-block // p.step))
    more = np.bincount(row, most, minlength=rows).astype(np.int64)
    if int(more.max(initial=0)) + int(pairs[~full].max(initial=0)) < block * block:
        return full
    at = owners(pointer(count))
    candidates = np.flatnonzero(~full & (pairs + more[at] >= block * block))
    order = np.argsort(row, kind="stable")
    ptr = np.searchsorted(row[order], np.arange(rows + 1))
    chunk = max(1, CHUNK // max(1, int(np.diff(ptr).max(initial=1))))
    for a in range(0, len(candidates), chunk):
        some = candidates[a : a + chunk]
        each = np.diff(ptr)[at[some]]
        piece = order[ranges(ptr[at[some]], each)]
        added = pairs_in(p[piece], np.repeat(index[some].astype(np.int64), each), block)
        total = np.bincount(np.repeat(np.arange(len(some)), each), added, minlength=len(some))
        full[some] = pairs[some] + total == block * block
    return full
