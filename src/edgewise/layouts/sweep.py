"""Set algebra on pieces: one sweep over the ends of all pieces of each slab."""

from collections.abc import Sequence

import numpy as np

from edgewise.layouts import few
from edgewise.layouts.compress import compressed
from edgewise.layouts.cuts import slab_tops
from edgewise.layouts.periodic import Segments, periodic_parts
from edgewise.layouts.pieces import Pieces, in_slabs, joined, pieces, tightened, within_rows
from edgewise.layouts.ragged import Bools, Ints, pointer, ranges
from edgewise.layouts.rows import Rows

NOTHING = pieces(([], []), [], [])
OR = np.array([[False, True], [True, True]])
AND = np.array([[False, False], [False, True]])
MINUS = np.array([[False, False], [True, False]])
NOT = np.array([[True, True], [False, False]])
AT_ONCE = 16


def rows_of_pieces(n: int, m: int, p: Pieces) -> Rows:
    """The normal form of the union of pieces; what lies outside n×m is cut off."""
    return combine(n, m, p, NOTHING, MINUS)


def combine(n: int, m: int, a: Pieces, b: Pieces, keep: Bools) -> Rows:
    """{(i, j) : keep[(i, j) ∈ a, (i, j) ∈ b]} in normal form."""
    if few.are_few(a, b):
        return few.combined(n, m, a, b, keep)
    a, b = within_rows(a, n), within_rows(b, n)
    p = tightened(joined(a, b))
    tops = slab_tops(n, m, p)
    which, slab, q = in_slabs(p, tops)
    some = q.start < q.stop
    which, slab, q = which[some], slab[some], q[some]
    borders = bool(keep[0, 0]) or (len(q) > 0 and (q.start.min() < 0 or q.stop.max() > m))
    segments, first, last = _segments(m, slab, q, len(tops) - 1, borders)
    depth = [_depth(first, last, (q.step == 1) & side, len(segments.slab))
             for side in (which < len(a), which >= len(a))]  # fmt: skip
    inside = (segments.low >= 0) & (segments.high <= m) & (segments.low < segments.high)
    long = np.flatnonzero(q.step > 1)
    if not len(long):
        solid = keep[depth[0].astype(int), depth[1].astype(int)] & inside
        return _collected(n, m, tops, segments, solid, None)
    count = last[long] - first[long]
    owner, segment = np.repeat(long, count), ranges(first[long], count)
    side = (which[owner] >= len(a)).astype(np.int64)
    covered = np.where(side == 0, depth[0][segment], depth[1][segment])
    some = ~covered & inside[segment]
    owner, segment, side = owner[some], segment[some], side[some]
    solid, extra = periodic_parts(segments, depth, (q, owner, segment, side), keep)
    return _collected(n, m, tops, segments, solid & inside, extra)


def folded(n: int, m: int, several: Sequence[Pieces], keep: Bools) -> Rows:
    """All of them combined by an operation that is associative, a few at a time."""
    while True:
        apart = keep is not OR or any((p.step > 1).any() for p in several)
        size = 2 if apart else AT_ONCE
        groups = [several[k : k + size] for k in range(0, len(several), size)]
        if len(groups) == 1:
            return _together(n, m, several, keep)
        several = [_together(n, m, group, keep).pieces() for group in groups]


def _together(n: int, m: int, group: Sequence[Pieces], keep: Bools) -> Rows:
    if len(group) == 2:
        return combine(n, m, group[0], group[1], keep)
    return rows_of_pieces(n, m, joined(*group))


def _segments(
    m: int, slab: Ints, q: Pieces, slabs: int, borders: bool
) -> tuple[Segments, Ints, Ints]:
    """The segments, and for each piece its first segment and the one after its last."""
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
    return Segments(of, at, high, slope, dhigh), place[: len(q)], place[len(q) : 2 * len(q)]


def _depth(first: Ints, last: Ints, which: Bools, segments: int) -> Bools:
    """Which segments the chosen pieces cover."""
    opened = np.bincount(first[which], minlength=segments)
    closed = np.bincount(last[which], minlength=segments)
    return np.cumsum(opened - closed) > 0


def _collected(
    n: int, m: int, tops: Ints, segments: Segments, solid: Bools, extra: Pieces | None
) -> Rows:
    """Rows of the solid segments, neighbours joined, and of the extra pieces (`top`: the slab)."""
    kept = np.flatnonzero(solid)
    joins = np.zeros(len(kept), bool)
    joins[1:] = (kept[1:] == kept[:-1] + 1) & (segments.slab[kept[1:]] == segments.slab[kept[:-1]])
    opening = kept[~joins]
    closing = kept[np.append(~joins[1:], True)] if len(kept) else kept
    out = Pieces(
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
