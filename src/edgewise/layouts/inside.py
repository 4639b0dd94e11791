"""How many pairs of a piece lie in a block, by closed formulas."""

import numpy as np
from numpy.typing import NDArray

from edgewise.layouts.pieces import Pieces
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges

CHUNK = 1 << 22


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


def filled_by_steps(
    row: Ints, pairs: Ints, runs: tuple[Ints, Pieces], rows: int, block: int
) -> Bools:
    """Block rows where progressions with step > 1 could fill up a block.

    `pairs` are those of the pieces with step 1, over stretches of blocks in block rows `row`.
    """
    of, p = runs
    most = np.where(p.step > 1, (p.bottom - p.top) * (-(-block // p.step)), 0)
    more = np.bincount(of, most, minlength=rows).astype(np.int64)
    base = np.zeros(rows, np.int64)
    partial = pairs < block * block
    np.maximum.at(base, row[partial], pairs[partial])
    return (more > 0) & (more + base >= block * block)


def recounted(
    blocks: tuple[Ints, NDArray[np.int32]], chosen: Bools, runs: tuple[Ints, Pieces], block: int
) -> Bools:
    """Which blocks are full, counted piece by piece in the chosen block rows."""
    (count, index), (row, p) = blocks, runs
    at = owners(pointer(count))
    candidates = np.flatnonzero(chosen[at])
    order = np.argsort(row, kind="stable")
    ptr = np.searchsorted(row[order], np.arange(len(count) + 1))
    full = np.zeros(len(index), bool)
    step = max(1, CHUNK // max(1, int(np.diff(ptr).max(initial=1))))
    for a in range(0, len(candidates), step):
        some = candidates[a : a + step]
        each = np.diff(ptr)[at[some]]
        piece = order[ranges(ptr[at[some]], each)]
        pairs = pairs_in(p[piece], np.repeat(index[some].astype(np.int64), each), block)
        total = np.bincount(np.repeat(np.arange(len(some)), each), pairs, minlength=len(some))
        full[some] = total == block * block
    return full
