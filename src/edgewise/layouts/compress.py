"""Rows that move together become one slab."""

import numpy as np

from edgewise.layouts.ragged import Bools, Ints, pointer, ranges
from edgewise.layouts.rows import Rows


def compressed(rows: Rows) -> Rows:
    """The same rows with neighbouring slabs joined where each piece of one goes on in the next."""
    if len(rows.top) < 3:
        return rows
    count = np.diff(rows.ptr)
    tall = (rows.height > 1)[rows.slab]
    slot = np.flatnonzero(np.append(count[1:] == count[:-1], False)[rows.slab])
    below = slot + count[rows.slab[slot]]
    moves = _moves(rows, slot, below, tall)
    linked = _linked(rows, count, slot, below, moves)
    if not linked.any():
        return rows
    first = np.flatnonzero(np.concatenate([[True], ~linked]))
    kept = ranges(rows.ptr[first], count[first])
    free = np.append(linked, False)[rows.slab[kept]] & ~tall[kept]
    dstart = np.where(free, moves[0, kept], rows.dstart[kept])
    dstop = np.where(free, moves[1, kept], rows.dstop[kept])
    top, ptr = np.append(rows.top[first], rows.n), pointer(count[first])
    start, stop, step = rows.start[kept], rows.stop[kept], rows.step[kept]
    return Rows(rows.n, rows.m, top, ptr, start, stop, dstart, dstop, step)


def _moves(rows: Rows, slot: Ints, below: Ints, tall: Bools) -> Ints:
    """How each piece steps from the last row of its slab to the next slab; -1: not at all."""
    down = rows.height[rows.slab[slot]] - 1
    moves = np.full((2, len(rows.start)), -1)
    fine = rows.step[slot] == rows.step[below]
    for k, (end, slope) in enumerate(((rows.start, rows.dstart), (rows.stop, rows.dstop))):
        move = end[below] - end[slot] - slope[slot] * down
        fine &= (move >= 0) & (move <= 1)
        fine &= (~tall[slot] | (move == slope[slot])) & (~tall[below] | (move == slope[below]))
        moves[k, slot] = move
    fine &= (rows.step[slot] == 1) | (moves[0, slot] == moves[1, slot])
    moves[:, slot[~fine]] = -1
    return moves


def _linked(rows: Rows, count: Ints, slot: Ints, below: Ints, moves: Ints) -> Bools:
    """For slabs 1, 2, ... whether they continue the slab before them."""
    slabs = len(count)
    bad = np.bincount(rows.slab[slot[moves[0, slot] < 0]], minlength=slabs) > 0
    linked = (count[1:] == count[:-1]) & ~bad[:-1]
    # Three slabs in a row become one only if the pieces step alike both times.
    turned = (moves[:, below] >= 0).all(axis=0) & (moves[:, below] != moves[:, slot]).any(axis=0)
    bends = np.bincount(rows.slab[below[turned]], minlength=slabs) > 0
    linked[1:] &= ~(bends[1:-1] & linked[:-1])
    return linked
