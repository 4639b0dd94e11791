"""Density maps: pairs counted in the cells of a coarse grid."""

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.blocks import pairs_in
from edgewise.layouts.ragged import ranges
from edgewise.layouts.trapezoid import Trapezoids, in_slabs

AT_ONCE = 1 << 22


def cell_size(n: int, cells: int) -> int:
    """The number of tokens per cell for at most `cells` cells."""
    return max(-(-n // max(cells, 1)), 1)


def density_map(rows: Rows, cells: int = 512) -> np.ndarray:
    """The number of pairs in each cell of a grid of at most cells × cells; O(trapezoids + cells²).

    >>> from edgewise.graphs import causal
    >>> density_map(causal().rows(1 << 20), 2).tolist()
    [[137439215616.0, 0.0], [274877906944.0, 137439215616.0]]
    """
    size = cell_size(max(rows.n, rows.m), cells)
    high, wide = -(-rows.n // size), -(-rows.m // size)
    borders = np.minimum(np.arange(high + 1) * size, rows.n)
    out = np.zeros(high * wide)
    _, row, runs = in_slabs(rows.trapezoids(), borders)
    last = runs.stop + runs.dstop * (runs.bottom - runs.top - 1) - 1
    low, high_column = runs.start // size, last // size + 1
    length = high_column - low
    ends = np.cumsum(length)
    first = 0
    while first < len(row):
        stop = max(int(np.searchsorted(ends, (ends[first] + AT_ONCE))), first + 1)
        some = np.arange(first, stop)
        which = np.repeat(some, length[some])
        column = ranges(low[some], length[some])
        out += np.bincount(
            row[which] * wide + column, _pairs(runs, which, column, size), minlength=len(out)
        )
        first = stop
    return out.reshape(high, wide)


def _pairs(runs: Trapezoids, which: np.ndarray, column: np.ndarray, size: int) -> np.ndarray:
    return pairs_in(runs[which], column, size)
