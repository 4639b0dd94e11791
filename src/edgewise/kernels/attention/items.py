"""Work lists for a GPU: every row is one item, unless it is so long that it is split.

A row that attends to every key would keep one multiprocessor busy while the others wait, so it is
split as in flash-decoding, and the parts are merged afterwards: no atomics, one order of sums.
"""

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, order_of, pointer, ranges


def items(ptr: Ints, least: int, times: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows ptr[r] ≤ x < ptr[r+1], in pieces of at most max(least, times × the mean length): a
    table of (row, slot, first element, last + 1), the split rows and where their slots begin."""
    count, rows = np.diff(ptr), len(ptr) - 1
    most = max(least, times * int(ptr[-1]) // max(rows, 1))
    row, slot, low, high = np.arange(rows), np.full(rows, -1), ptr[:-1], ptr[1:]
    split = np.flatnonzero(count > most)
    parts = -(-count[split] // most)
    if len(split):
        every = np.ones(rows, np.int64)
        every[split] = parts
        row, size = np.repeat(row, every), -(-count // every)
        low = np.minimum(ranges(ptr[:-1], every, size), ptr[1:][row])
        high = np.minimum(low + size[row], ptr[1:][row])
        among = (every > 1)[row]
        slot = np.where(among, np.cumsum(among) - 1, -1)
    # The longest first, so that none is left over at the end; equal ones stay neighbours.
    longest = int((high - low).max(initial=0))
    order = order_of(longest - (high - low), longest + 1)
    return np.stack([row, slot, low, high], axis=1)[order], split, pointer(parts)


def on_device(device: str, *arrays: np.ndarray) -> list[Tensor]:
    """int32 arrays moved in one copy; each starts at a multiple of 16 bytes, as kernels assume."""
    sizes = [-(-x.size // 4) * 4 for x in arrays]
    packed, at = np.zeros(sum(sizes), np.int32), 0
    for x, size in zip(arrays, sizes, strict=True):
        packed[at : at + x.size] = x.ravel()
        at += size
    parts = torch.from_numpy(packed).to(device).split(sizes)
    return [part[: x.size].view(x.shape) for part, x in zip(parts, arrays, strict=True)]
