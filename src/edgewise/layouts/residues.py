"""The order of tokens by residue class, in which strided and dilated patterns are dense."""

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, pointer, ranges
from edgewise.layouts.rows import Rows, compressed

FIRST = 64  # rows that show in most graphs that there is no step


def residue_order(n: int, step: int) -> Tensor:
    """The tokens 0 to n, those with equal i mod step together.

    >>> residue_order(6, 2)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.from_numpy(np.concatenate([np.arange(r, n, step) for r in range(step)]))


def common_step(rows: Rows) -> int:
    """The largest s such that every pair has i ≡ j (mod s); 0 if all pairs are on the diagonal."""
    if ((rows.step == 1) & (rows.stop - rows.start > 1)).any():
        return 1
    head = rows.between(0, min(FIRST, rows.n)).trapezoids()
    if np.gcd.reduce(np.abs(head.start - head.top), initial=0) == 1:
        return 1
    p = rows.trapezoids()
    apart = np.gcd.reduce(np.abs(p.start - p.top), initial=0)
    many = rows.size + np.maximum(p.dstop - p.dstart, 0) * (p.bottom - p.top - 1) > 1
    steps = np.gcd.reduce(p.step[many], initial=0)
    still = ((p.dstart == 0) | (p.dstop == 0)) & (p.bottom - p.top > 1)
    return int(np.gcd.reduce([apart, steps, int(still.any())]))


def by_residue(rows: Rows, step: int) -> Rows:
    """The same pairs with queries and keys renumbered in `residue_order`."""
    wide = rows.expand()
    every = np.gcd(wide.step, step)
    parts = np.minimum(step // every, wide.size)  # the residues one progression runs through
    which = np.repeat(np.arange(len(parts)), parts)
    start = ranges(wide.start, parts, wide.step)
    period = wide.step * (step // every)
    count = (wide.stop[which] - start - 1) // period[which] + 1
    row = _place(np.arange(rows.n), rows.n, step)[wide.slab[which]]
    begin = _place(np.arange(rows.m), rows.m, step)[start]
    every = period[which] // step
    order = np.lexsort((begin, row))
    row, begin, every, count = row[order], begin[order], every[order], count[order]
    flat = np.zeros(len(row), np.int64)
    stop = begin + (count - 1) * every + 1
    ptr = pointer(np.bincount(row, minlength=rows.n))
    one = np.where(count == 1, 1, every)
    top = np.arange(rows.n + 1)
    return compressed(Rows(rows.n, rows.m, top, ptr, begin, stop, flat, flat, one))


def _place(i: Ints, n: int, step: int) -> Ints:
    """Where each token comes in `residue_order(n, step)`."""
    sizes = (n - np.arange(step) + step - 1) // step
    return pointer(np.maximum(sizes, 0))[i % step] + i // step
