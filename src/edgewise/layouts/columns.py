"""The same pairs seen from the keys: which queries hear key j."""

import numpy as np

from edgewise.layouts.pieces import Pieces, joined, pieces
from edgewise.layouts.ragged import Ints, ranges
from edgewise.layouts.rows import Rows
from edgewise.layouts.sweep import rows_of_pieces


def transposed(rows: Rows) -> Rows:
    """{(j, i) : (i, j) ∈ rows}, in normal form: columns as intervals of queries."""
    p = rows.pieces()
    return rows_of_pieces(rows.m, rows.n, _turned(without_steps(p)))


def without_steps(p: Pieces) -> Pieces:
    """Every progression as one piece per key: each is a line in the matrix."""
    long = p.step > 1
    if not long.any():
        return p
    q = p[long]
    count = (q.stop - q.start - 1) // q.step + 1
    which = np.repeat(np.arange(len(q)), count)
    start = ranges(q.start, count, q.step)
    lines = q[which]
    ones = np.ones(len(which), np.int64)
    lines = Pieces(lines.top, lines.bottom, start, start + 1, lines.dstart, lines.dstop, ones)
    return joined(p[~long], lines)


def _turned(p: Pieces) -> Pieces:
    """Each trapezoid with its axes exchanged: at most three pieces, split where an edge bends.

    Row i has start + dstart·t ≤ j < stop + dstop·t with t = i - top, so column j has t from
    0 (or j - stop + 1 where the stop moves) to the height (or j - start + 1 where the start does).
    """
    height = p.bottom - p.top
    end = p.stop + p.dstop * (height - 1)
    bend_low = np.where(p.dstop == 1, p.stop, end)
    bend_high = np.where(p.dstart == 1, p.start + height - 1, p.start)
    bends = np.sort(np.clip(np.stack([p.start, bend_low, bend_high, end]), p.start, end), axis=0)
    parts = [_part(p, height, bends[k], bends[k + 1], bend_low, bend_high) for k in range(3)]
    return joined(*parts)


def _part(
    p: Pieces, height: Ints, low: Ints, high: Ints, bend_low: Ints, bend_high: Ints
) -> Pieces:
    sliding_start = (low >= bend_low) & (p.dstop == 1)
    sliding_stop = (low < bend_high) & (p.dstart == 1)
    start = p.top + np.where(sliding_start, low - p.stop + 1, 0)
    stop = p.top + np.where(sliding_stop, low - p.start + 1, height)
    some = low < high
    slopes = (sliding_start[some], sliding_stop[some])
    return pieces((low[some], high[some]), start[some], stop[some], slope=slopes)
