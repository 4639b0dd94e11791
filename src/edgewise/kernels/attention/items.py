"""Work lists for a GPU: every row is one item, unless it is so long that it is split.

A row that hears everybody would keep one processor busy while the others wait, so it is cut like
flash-decoding does, and the parts are merged afterwards: no atomics, one order of sums.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, order_of, pointer, ranges

SHORT = 128  # elements of a row, up to which the order of rows does not matter


@dataclass(frozen=True, eq=False)
class Items:
    """Item t works on elements ends[0][t] ≤ x < ends[-1][t] of row row[t]; the ends between cut
    them by sort. slot[t] is -1, or the place of its partial result.

    Split row s is row split[s]; its parts are the slots split_ptr[s] ≤ t < split_ptr[s+1].
    """

    row: Tensor
    ends: tuple[Tensor, ...]
    slot: Tensor
    split: Tensor
    split_ptr: Tensor
    slots: int


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
    table = np.stack([row, slot, low, high], axis=1).astype(np.int32)[order]
    return table, split.astype(np.int32), pointer(parts).astype(np.int32)


def items_of(ptr: Tensor, total: int, least: int, times: int = 4) -> Items:
    """The same for long lists, where the ends of rows are: on a GPU, if they are there."""
    count, rows = ptr.diff(), len(ptr) - 1
    most = max(least, times * total // max(rows, 1))
    small = torch.int32 if total < 2**31 else torch.int64
    if not rows or int(count.max()) <= SHORT:
        row = torch.arange(rows, dtype=torch.int32, device=ptr.device)
        slot, none = torch.full_like(row, -1), row.new_zeros(1)
        # Both ends begin at a multiple of 16 bytes, as above: kernels are compiled for that.
        ends = ptr[:-1].to(small), ptr[1:].to(small)
        return Items(row, ends, slot, none[:0], none, 0)
    parts = (-(-count // most)).clamp(min=1)
    several = parts > 1
    split = torch.nonzero(several)[:, 0]
    row = torch.repeat_interleave(torch.arange(rows, device=ptr.device), parts)
    nth = torch.arange(len(row), device=ptr.device) - (parts.cumsum(0) - parts)[row]
    size = -(-count // parts)
    stop = ptr[1:][row]
    low = torch.minimum(ptr[:-1][row] + nth * size[row], stop)
    high = torch.minimum(low + size[row], stop)
    among = several[row]
    slot = torch.where(among, among.cumsum(0) - 1, -1)
    split_ptr = torch.cat([split.new_zeros(1), parts[split].cumsum(0)])
    order = torch.argsort(low - high, stable=True)  # the longest first, as above
    row, low, high, slot = (x[order].to(small) for x in (row, low, high, slot))
    slots = len(row) - rows + len(split)
    return Items(row, (low, high), slot, split.to(torch.int32), split_ptr.to(torch.int32), slots)


def on_device(device: str, *arrays: np.ndarray) -> list[Tensor]:
    """int32 arrays moved in one copy; each starts at a multiple of 16 bytes, as kernels assume."""
    sizes = [-(-x.size // 4) * 4 for x in arrays]
    packed, at = np.zeros(sum(sizes), np.int32), 0
    for x, size in zip(arrays, sizes, strict=True):
        packed[at : at + x.size] = x.ravel()
        at += size
    parts = torch.from_numpy(packed).to(device).split(sizes)
    return [part[: x.size].view(x.shape) for part, x in zip(parts, arrays, strict=True)]
