"""Relations in normal form: transposed, composed, and renumbered by residue class."""

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, pointer, ranges
from edgewise.layouts.rows import Rows, compressed, row_by_row
from edgewise.layouts.sweep import rows_of_trapezoids
from edgewise.layouts.trapezoid import Trapezoids, joined, moved_to, trapezoids


def transposed(rows: Rows) -> Rows:
    """{(j, i) : (i, j) ∈ rows}, in normal form: columns as intervals of queries."""
    p = rows.trapezoids()
    return rows_of_trapezoids(rows.m, rows.n, _transposed(without_steps(p)))


def without_steps(p: Trapezoids) -> Trapezoids:
    """Every progression as one trapezoid per key: each is a line in the matrix."""
    long = p.step > 1
    if not long.any():
        return p
    q = p[long]
    count = (q.stop - q.start - 1) // q.step + 1
    which = np.repeat(np.arange(len(q)), count)
    start = ranges(q.start, count, q.step)
    lines = q[which]
    ones = np.ones(len(which), np.int64)
    lines = Trapezoids(lines.top, lines.bottom, start, start + 1, lines.dstart, lines.dstop, ones)
    return joined(p[~long], lines)


def _transposed(p: Trapezoids) -> Trapezoids:
    """Each trapezoid transposed: at most three, split at the corners.

    Row i has start + dstart·t ≤ j < stop + dstop·t with t = i - top, so column j has t from
    0 (or j - stop + 1 where the stop moves) to the height (or j - start + 1 where the start does).
    """
    height = p.bottom - p.top
    end = p.stop + p.dstop * (height - 1)
    corner_low = np.where(p.dstop == 1, p.stop, end)
    corner_high = np.where(p.dstart == 1, p.start + height - 1, p.start)
    corners = np.sort(
        np.clip(np.stack([p.start, corner_low, corner_high, end]), p.start, end), axis=0
    )
    parts = [
        _part(p, height, corners[k], corners[k + 1], corner_low, corner_high) for k in range(3)
    ]
    return joined(*parts)


def _part(
    p: Trapezoids, height: Ints, low: Ints, high: Ints, corner_low: Ints, corner_high: Ints
) -> Trapezoids:
    sliding_start = (low >= corner_low) & (p.dstop == 1)
    sliding_stop = (low < corner_high) & (p.dstart == 1)
    start = p.top + np.where(sliding_start, low - p.stop + 1, 0)
    stop = p.top + np.where(sliding_stop, low - p.start + 1, height)
    some = low < high
    slopes = (sliding_start[some], sliding_stop[some])
    return trapezoids((low[some], high[some]), start[some], stop[some], slope=slopes)


def composed(a: Rows, b: Rows) -> Rows:
    """{(i, k) : ∃ j. (i, j) ∈ a, (j, k) ∈ b}.

    An interval of keys j meets a slab of b in a range of its rows, and the union of an interval
    over such a range is an interval again: the cost is one step per row and slab met.
    """
    second = without_steps(b.trapezoids())
    second = second[np.lexsort((second.start, second.top))]
    bounds = np.unique(np.concatenate([second.top, second.bottom]))
    order, slab, cut = _by_slab(second, bounds)
    ptr = np.searchsorted(slab[order], np.arange(len(bounds)))
    row, start, stop = _by_row(without_steps(a.trapezoids()))
    met = _met(start, stop, bounds)
    out = _reached(row, start, stop, met, bounds, (ptr, cut[order]))
    return rows_of_trapezoids(a.n, b.m, out)


def power(first: Rows, square: Rows, hops: int) -> Rows:
    """`hops` hops: one by `first`, the others by `square`; by squaring, up to a fixed point."""
    left = hops - 1
    ends = _intervals(square)
    if left and ends is not None:
        return _along(first, *_many(*ends, left))
    while left:
        if left % 2:
            first = composed(first, square)
        left //= 2
        twice = composed(square, square) if left else square
        if left and twice.same_as(square):
            return composed(first, square)
        square = twice
    return first


def _intervals(b: Rows) -> tuple[Ints, Ints] | None:
    """The ends of each row if every row is one interval, the ends are monotonic, and neighbouring
    rows overlap or touch, as in a window: the same then holds after any number of hops."""
    if b.n != b.m or not b.n or (b.step > 1).any() or (np.diff(b.ptr) != 1).any():
        return None
    row = np.arange(b.n) - np.repeat(b.top[:-1], b.height)
    start, stop, dstart, dstop = (
        np.repeat(x, b.height) for x in (b.start, b.stop, b.dstart, b.dstop)
    )
    start, stop = start + dstart * row, stop + dstop * row
    back = (start[1:] < start[:-1]) | (stop[1:] < stop[:-1]) | (stop[:-1] < start[1:])
    return None if back.any() else (start, stop)


def _many(start: Ints, stop: Ints, hops: int) -> tuple[Ints, Ints]:
    """The ends after `hops` hops: those of the first key, and those of the last."""
    out = None
    while hops:
        if hops % 2:
            out = (start, stop) if out is None else (start[out[0]], stop[out[1] - 1])
        start, stop, hops = start[start], stop[stop - 1], hops // 2
    assert out is not None
    return out


def _along(a: Rows, start: Ints, stop: Ints) -> Rows:
    """`composed(a, b)`, where `start` and `stop` are the ends of `_intervals(b)`."""
    row, low, high = _by_row(without_steps(a.trapezoids()))
    return rows_of_trapezoids(
        a.n, len(start), trapezoids((row, row + 1), start[low], stop[high - 1])
    )


def _by_row(p: Trapezoids) -> tuple[Ints, Ints, Ints]:
    """Each trapezoid row by row: the row, and the ends of its interval there."""
    rows = p.bottom - p.top
    which = np.repeat(np.arange(len(p)), rows)
    down = ranges(np.zeros(len(rows), np.int64), rows)
    start = p.start[which] + p.dstart[which] * down
    return p.top[which] + down, start, p.stop[which] + p.dstop[which] * down


def _by_slab(p: Trapezoids, bounds: Ints) -> tuple[Ints, Ints, Trapezoids]:
    from_top = np.searchsorted(bounds, p.top)
    count = np.searchsorted(bounds, p.bottom) - from_top
    which, slab = np.repeat(np.arange(len(p)), count), ranges(from_top, count)
    cut = moved_to(p, which, bounds[slab], bounds[slab + 1])
    return np.argsort(slab, kind="stable"), slab, cut


def _met(start: Ints, stop: Ints, bounds: Ints) -> tuple[Ints, Ints]:
    """The first slab each interval meets, and how many."""
    last = max(len(bounds) - 1, 0)
    low = np.clip(np.searchsorted(bounds, start, side="right") - 1, 0, last)
    high = np.clip(np.searchsorted(bounds, stop), 0, last)
    return low, np.maximum(high - low, 0)


def _reached(
    row: Ints, start: Ints, stop: Ints, met: tuple[Ints, Ints], bounds: Ints,
    second: tuple[Ints, Trapezoids],
) -> Trapezoids:  # fmt: skip
    ptr, cut = second
    which = np.repeat(np.arange(len(row)), met[1])
    slab = ranges(*met)
    count = ptr[slab + 1] - ptr[slab] if len(slab) else slab
    part = ranges(ptr[slab], count) if len(slab) else slab
    which, slab = np.repeat(which, count), np.repeat(slab, count)
    low = np.maximum(start[which], bounds[slab]) - bounds[slab]
    high = np.minimum(stop[which], bounds[slab + 1]) - bounds[slab] - 1
    some = low <= high
    part, which, low, high = part[some], which[some], low[some], high[some]
    begin = cut.start[part] + cut.dstart[part] * low
    end = cut.stop[part] + cut.dstop[part] * high
    return trapezoids((row[which], row[which] + 1), begin, end)


FIRST = 64  # rows that show in most graphs that there is no step


def residue_order(n: int, step: int) -> Tensor:
    """The tokens 0 to n, those with equal i mod step together.

    >>> residue_order(6, 2)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.from_numpy(np.concatenate([np.arange(r, n, step) for r in range(step)]))


def common_step(rows: Rows) -> int:
    """The largest s such that every pair has i ≡ j (mod s); 0 if all pairs are on the diagonal."""
    if ((rows.step == 1) & (rows.stop - rows.start > 1)).any():
        return 1
    head = rows.between(0, min(FIRST, rows.n)).trapezoids()
    if np.gcd.reduce(np.abs(head.start - head.top), initial=0) == 1:
        return 1
    p = rows.trapezoids()
    apart = np.gcd.reduce(np.abs(p.start - p.top), initial=0)
    many = rows.size + np.maximum(p.dstop - p.dstart, 0) * (p.bottom - p.top - 1) > 1
    steps = np.gcd.reduce(p.step[many], initial=0)
    still = ((p.dstart == 0) | (p.dstop == 0)) & (p.bottom - p.top > 1)
    return int(np.gcd.reduce([apart, steps, int(still.any())]))


def by_residue(rows: Rows, step: int) -> Rows:
    """The same pairs with queries and keys renumbered in `residue_order`."""
    wide = rows.expand()
    every = np.gcd(wide.step, step)
    parts = np.minimum(step // every, wide.size)  # the residues one progression runs through
    which = np.repeat(np.arange(len(parts)), parts)
    start = ranges(wide.start, parts, wide.step)
    period = wide.step * (step // every)
    count = (wide.stop[which] - start - 1) // period[which] + 1
    row = _place(np.arange(rows.n), rows.n, step)[wide.slab[which]]
    begin = _place(np.arange(rows.m), rows.m, step)[start]
    every = period[which] // step
    order = np.lexsort((begin, row))
    row, begin, every, count = row[order], begin[order], every[order], count[order]
    stop = begin + (count - 1) * every + 1
    ptr = pointer(np.bincount(row, minlength=rows.n))
    one = np.where(count == 1, 1, every)
    return compressed(row_by_row(rows.n, rows.m, ptr, begin, stop, one))


def _place(i: Ints, n: int, step: int) -> Ints:
    """Where each token comes in `residue_order(n, step)`."""
    sizes = (n - np.arange(step) + step - 1) // step
    return pointer(np.maximum(sizes, 0))[i % step] + i // step
