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


def items(ptr: Ints, inner: tuple[Ints, ...], least: int, times: int = 4) -> Items:
    """Rows ptr[r] ≤ x < ptr[r+1], in pieces of at most max(least, times × the mean length).

    `inner` are the places in each row where one sort of element ends and the next begins.
    """
    count = np.diff(ptr)
    most = max(least, int(times * count.mean()) if len(count) else least)
    parts = np.maximum(-(-count // most), 1)
    row = np.repeat(np.arange(len(count)), parts)
    size = -(-count // parts)
    nth = ranges(np.zeros(len(count), np.int64), parts)
    low = np.minimum(ptr[:-1][row] + nth * size[row], ptr[1:][row])
    high = np.minimum(low + size[row], ptr[1:][row])
    between = [np.clip(place[row], low, high) for place in inner]
    several = parts > 1
    slot = np.full(len(row), -1)
    slot[several[row]] = np.arange(int(several[row].sum()))
    split_ptr = np.concatenate([[0], np.cumsum(parts[several])])
    # The longest first, so that none is left over at the end; equal ones stay neighbours.
    order = np.argsort(low - high, kind="stable")
    ends = tuple(_ints(x[order]) for x in (low, *between, high))
    split = _ints(np.flatnonzero(several)), _ints(split_ptr)
    return Items(_ints(row[order]), ends, _ints(slot[order]), *split, int(split_ptr[-1]))


def items_of(ptr: Tensor, total: int, least: int, times: int = 4) -> Items:
    """The same for long lists, where the ends of rows are: on a GPU, if they are there."""
    count, rows = ptr.diff(), len(ptr) - 1
    most = max(least, times * total // max(rows, 1))
    small = torch.int32 if total < 2**31 else torch.int64
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


def _ints(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.int32))


def on_device(device: str, *tensors: Tensor) -> list[Tensor]:
    """int32 tensors moved in one copy; each starts at a multiple of 16 bytes, as kernels assume."""
    sizes = [-(-x.numel() // 4) * 4 for x in tensors]
    packed = torch.zeros(sum(sizes), dtype=torch.int32)
    at, out = 0, []
    for x, size in zip(tensors, sizes, strict=True):
        packed[at : at + x.numel()] = x.flatten()
        at += size
    packed, at = packed.to(device), 0
    for x, size in zip(tensors, sizes, strict=True):
        out.append(packed[at : at + x.numel()].view(x.shape))
        at += size
    return out
