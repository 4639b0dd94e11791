"""Work lists for a GPU: every row is one item, unless it is so long that it is split.

A row that hears everybody would keep one processor busy while the others wait, so it is cut like
flash-decoding does, and the parts are merged afterwards: no atomics, one order of sums.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, ranges


@dataclass(frozen=True, eq=False)
class Items:
    """Item t works on elements low[t] ≤ x < high[t] of row row[t]; those before middle[t] are of
    the first sort. slot[t] is -1, or the place of its partial result.

    Split row s is row split[s]; its parts are the slots split_ptr[s] ≤ t < split_ptr[s+1].
    """

    row: Tensor
    low: Tensor
    middle: Tensor
    high: Tensor
    slot: Tensor
    split: Tensor
    split_ptr: Tensor
    slots: int


def items(ptr: Ints, middle: Ints, least: int, device: str) -> Items:
    """Rows ptr[r] ≤ x < ptr[r+1], in pieces of at most max(least, 4 × the mean length)."""
    count = np.diff(ptr)
    most = max(least, int(4 * count.mean()) if len(count) else least)
    parts = np.maximum(-(-count // most), 1)
    row = np.repeat(np.arange(len(count)), parts)
    size = -(-count // parts)
    nth = ranges(np.zeros(len(count), np.int64), parts)
    low = np.minimum(ptr[:-1][row] + nth * size[row], ptr[1:][row])
    high = np.minimum(low + size[row], ptr[1:][row])
    inner = np.clip(middle[row], low, high)
    several = parts > 1
    slot = np.full(len(row), -1)
    slot[several[row]] = np.arange(int(several[row].sum()))
    split_ptr = np.concatenate([[0], np.cumsum(parts[several])])
    # The longest first, so that none is left over at the end; equal ones stay neighbours.
    order = np.argsort(-(high - low), kind="stable")
    arrays = (
        *(x[order] for x in (row, low, inner, high, slot)),
        np.flatnonzero(several),
        split_ptr,
    )
    row_, low_, inner_, high_, slot_, split, ends = (
        torch.from_numpy(x.astype(np.int32)).to(device) for x in arrays
    )
    return Items(row_, low_, inner_, high_, slot_, split, ends, int(split_ptr[-1]))
