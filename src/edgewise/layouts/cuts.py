"""Where to cut the rows so that within a slab the ends of all pieces keep their order."""

import numpy as np

from edgewise.layouts.pieces import Pieces, in_slabs
from edgewise.layouts.ragged import Bools, Ints, distinct, ranges


def slab_tops(n: int, m: int, p: Pieces) -> Ints:
    """The rows at which slabs begin, and n.

    Between two of them every piece is there or not, no two ends of pieces cross (nor the borders
    0 and m), and no progression is cut by an end that moves against it.
    """
    if 2 * len(p) > n:  # a mark per row is quicker than a sort
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
    """The ends of all pieces in tall slabs, as sorted keys (slab, value), apart by slope."""

    def __init__(self, m: int, p: Pieces, tops: Ints) -> None:
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


def _crossings(m: int, p: Pieces, tops: Ints) -> Ints:
    """Rows where an end that moves meets one that stands, and the rows after them."""
    ends = _Ends(m, p, tops)
    if not len(ends.sloped):
        return np.zeros(0, np.int64)
    slab = ends.sloped // ends.width
    first = np.searchsorted(ends.flat, ends.sloped)
    count = np.searchsorted(ends.flat, ends.sloped + ends.height[slab]) - first
    meets = ends.flat[ranges(first, count)] - np.repeat(ends.sloped, count)
    row = np.repeat(tops[slab], count) + meets
    return np.concatenate([row, row + 1])


def _mixed(m: int, p: Pieces, tops: Ints) -> Bools:
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
