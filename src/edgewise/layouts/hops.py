"""Two hops: the pairs joined by a key of the first set that is a query of the second."""

import numpy as np

from edgewise.layouts.columns import without_steps
from edgewise.layouts.pieces import Pieces, moved_to, pieces
from edgewise.layouts.ragged import Ints, ranges
from edgewise.layouts.rows import Rows
from edgewise.layouts.sweep import rows_of_pieces


def composed(a: Rows, b: Rows) -> Rows:
    """{(i, k) : ∃ j. (i, j) ∈ a, (j, k) ∈ b}.

    An interval of keys j meets a slab of b in a range of its rows, and the union of an interval
    over such a range is an interval again: the cost is one step per row and slab met.
    """
    second = without_steps(b.pieces())
    second = second[np.lexsort((second.start, second.top))]
    bounds = np.unique(np.concatenate([second.top, second.bottom]))
    order, slab, cut = _by_slab(second, bounds)
    ptr = np.searchsorted(slab[order], np.arange(len(bounds)))
    first = without_steps(a.pieces())
    rows = first.bottom - first.top
    which, down = (
        np.repeat(np.arange(len(first)), rows),
        ranges(np.zeros(len(rows), np.int64), rows),
    )
    start = first.start[which] + first.dstart[which] * down
    stop = first.stop[which] + first.dstop[which] * down
    met = _met(start, stop, bounds)
    out = _reached(first.top[which] + down, start, stop, met, bounds, (ptr, cut[order]))
    return rows_of_pieces(a.n, b.m, out)


def _by_slab(p: Pieces, bounds: Ints) -> tuple[Ints, Ints, Pieces]:
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
    second: tuple[Ints, Pieces],
) -> Pieces:  # fmt: skip
    ptr, cut = second
    which = np.repeat(np.arange(len(row)), met[1])
    slab = ranges(*met)
    count = ptr[slab + 1] - ptr[slab] if len(slab) else slab
    piece = ranges(ptr[slab], count) if len(slab) else slab
    which, slab = np.repeat(which, count), np.repeat(slab, count)
    low = np.maximum(start[which], bounds[slab]) - bounds[slab]
    high = np.minimum(stop[which], bounds[slab + 1]) - bounds[slab] - 1
    some = low <= high
    piece, which, low, high = piece[some], which[some], low[some], high[some]
    begin = cut.start[piece] + cut.dstart[piece] * low
    end = cut.stop[piece] + cut.dstop[piece] * high
    return pieces((row[which], row[which] + 1), begin, end)
