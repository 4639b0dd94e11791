"""Sets of pairs as pieces: affine progressions of keys over ranges of rows, in any order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from edgewise.layouts.ragged import Bools, Ints, ranges


@dataclass(frozen=True, eq=False)
class Pieces:
    """{(i, j) : top ≤ i < bottom, j ∈ start(i), start(i) + step, ... < stop(i)} for every piece.

    start(i) = start + dstart · (i - top), stop(i) likewise; the slopes are 0 or 1, and equal
    where step > 1. Pieces with step > 1 are disjoint.
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

    def __getitem__(self, which: Ints | Bools) -> "Pieces":
        return Pieces(*[part[which] for part in self.parts])


def pieces(
    rows: tuple[ArrayLike, ArrayLike],
    start: ArrayLike,
    stop: ArrayLike,
    *,
    slope: tuple[ArrayLike, ArrayLike] = (0, 0),
    step: ArrayLike = 1,
) -> Pieces:
    """Pieces from numbers and arrays, which broadcast.

    >>> len(pieces((0, 8), [0, 4], [1, 5]))
    2
    """
    given = (*rows, start, stop, *slope, step)
    if all(isinstance(part, int) for part in given):
        return Pieces(*np.array(given, np.int64)[:, None])
    parts = np.broadcast_arrays(*(np.atleast_1d(part) for part in given))
    return Pieces(*(np.ascontiguousarray(part, dtype=np.int64) for part in parts))


def joined(*several: Pieces) -> Pieces:
    """The pieces of all, end to end."""
    return Pieces(*map(np.concatenate, zip(*(p.parts for p in several), strict=True)))


def moved_to(p: Pieces, which: Ints, top: Ints, bottom: Ints) -> Pieces:
    """Piece `which[k]`, cut down to the rows from `top[k]` to `bottom[k]`."""
    down = top - p.top[which]
    return Pieces(
        top,
        bottom,
        p.start[which] + down * p.dstart[which],
        p.stop[which] + down * p.dstop[which],
        p.dstart[which],
        p.dstop[which],
        p.step[which],
    )


def within_rows(p: Pieces, n: int) -> Pieces:
    """The part of the pieces in rows 0 to n."""
    top, bottom = np.maximum(p.top, 0), np.minimum(p.bottom, n)
    kept = np.flatnonzero(top < bottom)
    return moved_to(p, kept, top[kept], bottom[kept])


def tightened(p: Pieces) -> Pieces:
    """The same set, with the stop of every progression just after its last key."""
    last = p.start + (p.stop - p.start - 1) // p.step * p.step
    stop = np.where(p.step > 1, last + 1, p.stop)
    step = np.where((p.step > 1) & (last == p.start), 1, p.step)
    return Pieces(p.top, p.bottom, p.start, stop, p.dstart, p.dstop, step)


def in_slabs(p: Pieces, tops: Ints) -> tuple[Ints, Ints, Pieces]:
    """Cut at the rows `tops`: which piece, its slab, and the part of it there."""
    first = np.searchsorted(tops, p.top, side="right") - 1
    count = np.searchsorted(tops, p.bottom) - first
    which = np.repeat(np.arange(len(p)), count)
    slab = ranges(first, count)
    top, bottom = np.maximum(tops[slab], p.top[which]), np.minimum(tops[slab + 1], p.bottom[which])
    return which, slab, moved_to(p, which, top, bottom)
