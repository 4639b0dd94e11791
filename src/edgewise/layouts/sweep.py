"""Set algebra on trapezoids: a sweep over the ends of all trapezoids of each slab."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewise.layouts import small_sweep
from edgewise.layouts.ragged import Bools, Ints, distinct, pointer, ranges, starts_of_runs
from edgewise.layouts.rows import Rows, compressed
from edgewise.layouts.trapezoid import (
    Trapezoids,
    clip_rows,
    in_slabs,
    joined,
    tightened,
    trapezoids,
)

NOTHING = trapezoids(([], []), [], [])
OR = np.array([[False, True], [True, True]])
AND = np.array([[False, False], [False, True]])
MINUS = np.array([[False, False], [True, False]])
NOT = np.array([[True, True], [False, False]])
AT_ONCE = 16


@dataclass(frozen=True)
class SlabSegments:
    """The intervals between neighbouring ends in a slab, grouped by slab."""

    slab: Ints
    low: Ints
    high: Ints
    dlow: Ints
    dhigh: Ints


def rows_of_trapezoids(n: int, m: int, p: Trapezoids) -> Rows:
    """The normal form of the union of trapezoids, clipped to n×m."""
    return combine(n, m, p, NOTHING, MINUS)


def combine(n: int, m: int, a: Trapezoids, b: Trapezoids, table: Bools) -> Rows:
    """{(i, j) : table[(i, j) ∈ a, (i, j) ∈ b]} in normal form; `table` is a truth table."""
    if small_sweep.applies(a, b):
        return small_sweep.combine(n, m, a, b, table)
    a, b = clip_rows(a, n), clip_rows(b, n)
    p = tightened(joined(a, b))
    tops = slab_tops(n, m, p)
    which, slab, q = in_slabs(p, tops)
    some = q.start < q.stop
    which, slab, q = which[some], slab[some], q[some]
    borders = bool(table[0, 0]) or (len(q) > 0 and (q.start.min() < 0 or q.stop.max() > m))
    segments, first, last = _segments(m, slab, q, len(tops) - 1, borders)
    depth = [_depth(first, last, (q.step == 1) & side, len(segments.slab))
             for side in (which < len(a), which >= len(a))]  # fmt: skip
    inside = (segments.low >= 0) & (segments.high <= m) & (segments.low < segments.high)
    long = np.flatnonzero(q.step > 1)
    if not len(long):
        solid = table[depth[0].astype(int), depth[1].astype(int)] & inside
        return _collected(n, m, tops, segments, solid, None)
    count = last[long] - first[long]
    owner, segment = np.repeat(long, count), ranges(first[long], count)
    side = (which[owner] >= len(a)).astype(np.int64)
    covered = np.where(side == 0, depth[0][segment], depth[1][segment])
    some = ~covered & inside[segment]
    owner, segment, side = owner[some], segment[some], side[some]
    solid, extra = periodic_parts(segments, depth, (q, owner, segment, side), table)
    return _collected(n, m, tops, segments, solid & inside, extra)


def fold(n: int, m: int, several: Sequence[Trapezoids], table: Bools) -> Rows:
    """All of them combined by an associative operation, up to `AT_ONCE` per sweep."""
    while True:
        apart = table is not OR or any((p.step > 1).any() for p in several)
        size = 2 if apart else AT_ONCE
        groups = [several[k : k + size] for k in range(0, len(several), size)]
        if len(groups) == 1:
            return _together(n, m, several, table)
        several = [_together(n, m, group, table).trapezoids() for group in groups]


def _together(n: int, m: int, group: Sequence[Trapezoids], table: Bools) -> Rows:
    if len(group) == 2:
        return combine(n, m, group[0], group[1], table)
    return rows_of_trapezoids(n, m, joined(*group))


def _segments(
    m: int, slab: Ints, q: Trapezoids, slabs: int, borders: bool
) -> tuple[SlabSegments, Ints, Ints]:
    """The segments, and for each trapezoid its first segment and the one after its last."""
    every = np.arange(slabs if borders else 0)
    none = np.zeros(len(every), np.int64)
    value = np.concatenate([q.start, q.stop, none, none + m])
    slope = np.concatenate([q.dstart, q.dstop, none, none])
    low = int(value.min(initial=0))
    width = int(value.max(initial=0)) - low + 1
    key = np.concatenate([slab, slab, every, every]) * width + (value - low)
    ends, where, place = np.unique(key, return_index=True, return_inverse=True)
    of, at, slope = ends // width, ends % width + low, slope[where]
    high, dhigh = np.append(at[1:], 0), np.append(slope[1:], 0)
    closes = np.append(of[1:] != of[:-1], True) if len(of) else np.zeros(0, bool)
    high[closes] = at[closes]
    return SlabSegments(of, at, high, slope, dhigh), place[: len(q)], place[len(q) : 2 * len(q)]


def _depth(first: Ints, last: Ints, which: Bools, segments: int) -> Bools:
    """Which segments the chosen trapezoids cover."""
    opened = np.bincount(first[which], minlength=segments)
    closed = np.bincount(last[which], minlength=segments)
    return np.cumsum(opened - closed) > 0


def _collected(
    n: int, m: int, tops: Ints, segments: SlabSegments, solid: Bools, extra: Trapezoids | None
) -> Rows:
    """Rows of the solid segments, neighbours merged, and of `extra`, whose `top` is the slab."""
    at = np.flatnonzero(solid)
    joins = np.zeros(len(at), bool)
    joins[1:] = (at[1:] == at[:-1] + 1) & (segments.slab[at[1:]] == segments.slab[at[:-1]])
    opening = at[~joins]
    closing = at[np.append(~joins[1:], True)] if len(at) else at
    out = Trapezoids(
        segments.slab[opening],
        segments.slab[opening],
        segments.low[opening],
        segments.high[closing],
        segments.dlow[opening],
        segments.dhigh[closing],
        np.ones(len(opening), np.int64),
    )
    if extra is not None:
        out = joined(out, extra)
        out = out[np.lexsort((out.start, out.top))]
    single = np.diff(tops)[out.top] == 1
    ptr = pointer(np.bincount(out.top, minlength=len(tops) - 1))
    dstart, dstop = np.where(single, 0, out.dstart), np.where(single, 0, out.dstop)
    return compressed(Rows(n, m, tops, ptr, out.start, out.stop, dstart, dstop, out.step))


def slab_tops(n: int, m: int, p: Trapezoids) -> Ints:
    """The rows at which slabs begin, and n.

    In a slab every trapezoid is present in all rows or none, no two ends cross (nor the borders 0
    and m), and no progression is cut by an end of the other slope.
    """
    if 2 * len(p) > n:  # a mark per row is faster than a sort
        marks = np.zeros(n + 1, bool)
        marks[[0, n]] = marks[p.top] = marks[p.bottom] = True
        tops = np.flatnonzero(marks)
    else:
        tops = distinct(np.concatenate([np.array([0, n]), p.top, p.bottom]))
    if not len(p) or n == 0:
        return tops
    crossing = _crossings(m, p, tops)
    if len(crossing):
        tops = distinct(np.concatenate([tops, crossing]))
    if (p.step > 1).any():
        mixed = np.flatnonzero(_mixed(m, p, tops))
        if len(mixed):
            rows = ranges(tops[mixed], tops[mixed + 1] - tops[mixed])
            tops = distinct(np.concatenate([tops, rows]))
    return tops


class _Ends:
    """The ends of all trapezoids in slabs of several rows: sorted keys (slab, value) per slope."""

    def __init__(self, m: int, p: Trapezoids, tops: Ints) -> None:
        height = np.diff(tops)
        _, slab, q = in_slabs(p, tops)
        tall = height[slab] > 1
        self.slab, self.q = slab[tall], q[tall]
        present = distinct(self.slab)
        slabs = np.concatenate([self.slab, self.slab, present, present])
        value = np.concatenate(
            [self.q.start, self.q.stop, np.zeros(len(present), np.int64), np.full(len(present), m)]
        )
        slope = np.concatenate([self.q.dstart, self.q.dstop, np.zeros(2 * len(present), np.int64)])
        self.height = height
        self.low = int(value.min(initial=0))
        self.width = int(value.max(initial=m) - self.low + height.max(initial=1) + 2)
        key = self.key(slabs, value)
        self.flat, self.sloped = distinct(key[slope == 0]), distinct(key[slope == 1])

    def key(self, slab: Ints, value: Ints) -> Ints:
        return slab * self.width + (value - self.low)


def _crossings(m: int, p: Trapezoids, tops: Ints) -> Ints:
    """Rows where a sloped end meets a vertical one, and the rows after them."""
    ends = _Ends(m, p, tops)
    if not len(ends.sloped):
        return np.zeros(0, np.int64)
    slab = ends.sloped // ends.width
    first = np.searchsorted(ends.flat, ends.sloped)
    count = np.searchsorted(ends.flat, ends.sloped + ends.height[slab]) - first
    meets = ends.flat[ranges(first, count)] - np.repeat(ends.sloped, count)
    row = np.repeat(tops[slab], count) + meets
    return np.concatenate([row, row + 1])


def _mixed(m: int, p: Trapezoids, tops: Ints) -> Bools:
    """Slabs in which an end of the other slope lies inside a progression."""
    ends = _Ends(m, p, tops)
    mixed = np.zeros(len(tops) - 1, bool)
    for slope, others in ((0, ends.sloped), (1, ends.flat)):
        which = (ends.q.step > 1) & (ends.q.dstart == slope)
        slab = ends.slab[which]
        start, stop = ends.q.start[which], ends.q.stop[which]
        inside = np.searchsorted(others, ends.key(slab, stop)) > np.searchsorted(
            others, ends.key(slab, start), side="right"
        )
        mixed[slab[inside]] = True
    return mixed


Parts = tuple[Trapezoids, Ints, Ints, Ints]
"""Trapezoids; then for each overlap of one with a segment: both indices, and its operand (0, 1)."""


def periodic_parts(
    segments: SlabSegments, depth: list[Bools], parts: Parts, table: Bools
) -> tuple[Bools, Trapezoids]:
    """Segments wholly in the result, and the result in segments that hold progressions.

    Progressions with step > 1 are decided by their residues in one period.
    """
    _, _, segment, side = parts
    count = len(segments.slab)
    has = [np.bincount(segment[side == s], minlength=count) > 0 for s in (0, 1)]
    inside = [depth[0].astype(int), depth[1].astype(int)]
    solid = table[inside[0], inside[1]] & ~has[0] & ~has[1]
    as_it_is = np.zeros(count, bool)
    for s in (0, 1):
        other = inside[1 - s]
        with_it = table[1, other] if s == 0 else table[other, 1]
        without = table[0, other] if s == 0 else table[other, 0]
        alone = has[s] & ~has[1 - s]
        solid |= alone & with_it & without
        as_it_is |= alone & with_it & ~without
        has[s] = has[s] & ~(alone & (with_it | ~without))
    mixed = has[0] | has[1]
    direct = _clipped(segments, parts, np.flatnonzero(as_it_is[segment]))
    if not mixed.any():
        return solid, direct
    filled, general = _by_residue(segments, inside, parts, np.flatnonzero(mixed[segment]), table)
    solid[filled] = True
    return solid, joined(direct, general)


def _clipped(segments: SlabSegments, parts: Parts, chosen: Ints) -> Trapezoids:
    """The chosen progressions, clipped to their segments; `top` is the slab."""
    q, owner, segment, _ = parts
    owner, segment = owner[chosen], segment[chosen]
    low, high, step = segments.low[segment], segments.high[segment], q.step[owner]
    start = low + (q.start[owner] - low) % step
    some = start < high
    owner, segment, start, step = owner[some], segment[some], start[some], step[some]
    slab, slope = segments.slab[segment], q.dstart[owner]
    return tightened(Trapezoids(slab, slab, start, segments.high[segment], slope, slope, step))


def _by_residue(
    segments: SlabSegments, inside: list[Ints], parts: Parts, chosen: Ints, table: Bools
) -> tuple[Ints, Trapezoids]:
    """Solid segments and progressions, decided key by key over one period (or one segment)."""
    q, owner, segment, side = parts
    chosen = chosen[np.argsort(segment[chosen], kind="stable")]
    owner, segment, side = owner[chosen], segment[chosen], side[chosen]
    opening = starts_of_runs(segment)
    which = segment[opening]
    length = segments.high[which] - segments.low[which]
    period = _periods(q.step[owner], opening, length)
    base = np.cumsum(period) - period
    here = np.repeat(np.arange(len(which)), period)
    member = [np.repeat(inside[s][which], period) for s in (0, 1)]
    place = np.searchsorted(which, segment)
    offset = (q.start[owner] - segments.low[segment]) % q.step[owner]
    count = np.maximum((period[place] - offset - 1) // q.step[owner] + 1, 0)
    touched = ranges(base[place] + offset, count, q.step[owner])
    for s in (0, 1):
        member[s][touched[np.repeat(side == s, count)]] = 1
    held = table[member[0], member[1]]
    total = np.bincount(here[held], minlength=len(which))
    solid = total == period
    at = np.flatnonzero(held & ~solid[here])
    here = here[at]
    start = segments.low[which[here]] + at - base[here]
    long = period[here] < length[here]
    stop = np.where(long, segments.high[which[here]], start + 1)
    slab, slope = segments.slab[which[here]], segments.dlow[which[here]]
    step = np.where(long, period[here], 1)
    return which[solid], tightened(Trapezoids(slab, slab, start, stop, slope, slope, step))


def _periods(step: Ints, opening: Ints, length: Ints) -> Ints:
    """The least common multiple of the steps in each group, at most the length."""
    bits = np.add.reduceat(np.log2(step), opening)
    multiple = np.lcm.reduceat(step, opening)
    return np.where(bits < 62, np.minimum(multiple, length), length)
