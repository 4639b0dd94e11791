"""Sets of pairs as trapezoids: progressions of keys with affine ends over ranges of rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from edgewise.layouts.ragged import Bools, Ints, ranges


@dataclass(frozen=True, eq=False)
class Trapezoids:
    """{(i, j) : top ≤ i < bottom, j ∈ start(i), start(i) + step, ... < stop(i)} for each.

    start(i) = start + dstart · (i - top), stop(i) likewise; the slopes are 0 or 1, and equal
    where step > 1. Those with step > 1 are disjoint.
    """

    top: Ints
    bottom: Ints
    start: Ints
    stop: Ints
    dstart: Ints
    dstop: Ints
    step: Ints

    def __len__(self) -> int:
        return len(self.top)

    @property
    def parts(self) -> tuple[Ints, ...]:
        ends = (self.start, self.stop, self.dstart, self.dstop)
        return (self.top, self.bottom, *ends, self.step)

    def __getitem__(self, which: Ints | Bools) -> "Trapezoids":
        return Trapezoids(*[part[which] for part in self.parts])


def trapezoids(
    rows: tuple[ArrayLike, ArrayLike],
    start: ArrayLike,
    stop: ArrayLike,
    *,
    slope: tuple[ArrayLike, ArrayLike] = (0, 0),
    step: ArrayLike = 1,
) -> Trapezoids:
    """Trapezoids from integers and arrays, which broadcast; ends are those of the first row.

    >>> len(trapezoids((0, 8), [0, 4], [1, 5]))
    2
    """
    ends = (*rows, start, stop, *slope, step)
    if all(isinstance(part, int) for part in ends):
        return Trapezoids(*np.array(ends, np.int64)[:, None])
    parts = np.broadcast_arrays(*(np.atleast_1d(part) for part in ends))
    return Trapezoids(*(np.ascontiguousarray(part, dtype=np.int64) for part in parts))


def joined(*several: Trapezoids) -> Trapezoids:
    """The trapezoids of all, concatenated."""
    return Trapezoids(*map(np.concatenate, zip(*(p.parts for p in several), strict=True)))


def moved_to(p: Trapezoids, which: Ints, top: Ints, bottom: Ints) -> Trapezoids:
    """Trapezoid `which[k]`, clipped to the rows from `top[k]` to `bottom[k]`."""
    down = top - p.top[which]
    return Trapezoids(
        top,
        bottom,
        p.start[which] + down * p.dstart[which],
        p.stop[which] + down * p.dstop[which],
        p.dstart[which],
        p.dstop[which],
        p.step[which],
    )


def clip_rows(p: Trapezoids, n: int) -> Trapezoids:
    """The trapezoids clipped to rows 0 to n."""
    top, bottom = np.maximum(p.top, 0), np.minimum(p.bottom, n)
    some = np.flatnonzero(top < bottom)
    return moved_to(p, some, top[some], bottom[some])


def tightened(p: Trapezoids) -> Trapezoids:
    """The same set, with the stop of every progression just after its last key."""
    last = p.start + (p.stop - p.start - 1) // p.step * p.step
    stop = np.where(p.step > 1, last + 1, p.stop)
    step = np.where((p.step > 1) & (last == p.start), 1, p.step)
    return Trapezoids(p.top, p.bottom, p.start, stop, p.dstart, p.dstop, step)


def in_slabs(p: Trapezoids, tops: Ints) -> tuple[Ints, Ints, Trapezoids]:
    """Split at the rows `tops`: the index of the trapezoid, its slab, and its part there."""
    first = np.searchsorted(tops, p.top, side="right") - 1
    count = np.searchsorted(tops, p.bottom) - first
    which = np.repeat(np.arange(len(p)), count)
    slab = ranges(first, count)
    top, bottom = np.maximum(tops[slab], p.top[which]), np.minimum(tops[slab + 1], p.bottom[which])
    return which, slab, moved_to(p, which, top, bottom)
