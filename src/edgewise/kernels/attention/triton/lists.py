"""Which blocks each program of block-sparse attention on a GPU takes, as lists on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.block_counts import tiling_of
from edgewise.layouts.bitmap import BitTiling
from edgewise.layouts.boxes import BoxTiling
from edgewise.layouts.ragged import Ints, order_of, pointer, ranges
from edgewise.layouts.tiling import FULL, Intervals

LEAST = 32  # blocks that one program takes without splitting its row
TIMES = 2  # or as many times the mean
LONG = 1.5  # times the median: what is longer starts first
LAYERS, ONE, BITS = 0, 1, 2  # how the pairs of a partial block are written
GROWTH = 16  # layers are blocks of their own where lists grow by at most one in so many


@dataclass(frozen=True, eq=False)
class Lists:
    """Per row (or column) its blocks: first full ones, then partial ones.

    Item t is the row items[t, 0] with the blocks work[items[t, 2] : items[t, 3]]; items[t, 1] is
    -1, or the place of its partial result. A word of `work` is a block, and above it its kind or
    FULL. `split` and `split_ptr` are the rows in several items, and where their slots begin. The
    `first` items are much longer than most: the last program to start must not be one of them.
    """

    items: Tensor
    work: Tensor
    split: Tensor
    split_ptr: Tensor
    slots: int
    first: int


@dataclass(frozen=True, eq=False)
class Tiles:
    """Row r of kind u has the keys low ≤ j < high of its block, for ends[l, r] = low + 2¹⁶·high
    and the layers layer_ptr[u] ≤ l < layer_ptr[u+1]. `form` says how: LAYERS, ONE layer, u alone,
    or BITS: bit j of ends[u, r] is key j of the block."""

    height: int  # in blocks
    rows: Lists
    columns: Lists
    layer_ptr: Tensor
    ends: Tensor
    form: int


@cached
def tile_lists(graph: Pattern, n: int, m: int, block: int, device: str) -> Tiles:
    found = tiling_of(graph, n, m, block)
    row, index, kinds = found.listed()
    height, width = found.shape
    if isinstance(found, BitTiling | BoxTiling):
        layer_ptr, ends, form = np.zeros(1, np.int32), found.bits().view(np.int32), BITS
    else:
        looks = found.kinds[1]
        layer_ptr, ends = _layers(looks)
        form = ONE if len(ends) == looks.kinds or not looks.kinds else LAYERS
        if form == LAYERS and _added(kinds, layer_ptr) * GROWTH <= len(kinds):
            row, index, kinds = _in_layers(row, index, kinds, layer_ptr)
            layer_ptr, form = np.arange(len(ends) + 1, dtype=np.int32), ONE
    order = order_of(2 * row + (kinds != FULL), 2 * height)
    row, index, kinds = row[order], index[order], kinds[order]
    rows = _lists(row, index, kinds, height)
    order = order_of(2 * index + (kinds != FULL), 2 * width)
    columns = _lists(index[order], row[order], kinds[order], width)
    arrays = [layer_ptr, ends, *rows[0], *columns[0]]
    ptr, both, *moved = on_device(device, *arrays)
    lists = _moved(moved[:4], rows[1]), _moved(moved[4:], columns[1])
    both = both.view(torch.int64) if form == BITS else both
    return Tiles(height, *lists, ptr, both, form)


def _added(kinds: Ints, layer_ptr: np.ndarray) -> int:
    """By how many blocks lists grow if every layer of a block is a block of its own."""
    return int((np.diff(layer_ptr)[kinds[kinds != FULL]] - 1).sum())


def _in_layers(
    row: Ints, index: Ints, kinds: Ints, layer_ptr: np.ndarray
) -> tuple[Ints, Ints, Ints]:
    """Every layer of a block as a block: a softmax does not mind in how many parts it is summed."""
    partial = kinds != FULL
    count = np.where(partial, np.diff(layer_ptr)[kinds * partial], 1)
    layers = np.where(partial, layer_ptr[kinds * partial], FULL)
    again = np.repeat(np.arange(len(kinds)), count)
    nth = ranges(np.zeros(len(kinds), np.int64), count)
    return row[again], index[again], layers[again] + nth


def _lists(
    row: Ints, index: Ints, kinds: Ints, height: int
) -> tuple[list[np.ndarray], tuple[int, int]]:
    """The arrays of `Lists`, how many slots there are, and how many items come first."""
    ptr = pointer(np.bincount(row, minlength=height))
    table, split, split_ptr = items(ptr, LEAST, TIMES)
    work = np.stack([index, kinds], axis=1).astype(np.int32)
    size = table[:, 3] - table[:, 2]  # the longest first
    middle = (size[(len(size) - 1) // 2] + size[len(size) // 2]) / 2 if len(size) else 0
    first = int((size > LONG * middle).sum())
    return [table, work, split, split_ptr], (int(split_ptr[-1]), first)


def _moved(arrays: list[Tensor], counts: tuple[int, int]) -> Lists:
    table, work, split, split_ptr = arrays
    return Lists(table, work.view(torch.int64), split, split_ptr, *counts)


def _layers(looks: Intervals) -> tuple[np.ndarray, np.ndarray]:
    """The l-th interval of every row is in layer l of its kind."""
    block = looks.block
    count = np.bincount(looks.line, minlength=looks.kinds * block)
    nth = np.arange(len(looks.line)) - pointer(count)[looks.line]
    layer_ptr = pointer(count.reshape(-1, block).max(axis=1, initial=0))
    ends = np.zeros((max(int(layer_ptr[-1]), 1), block), np.int32)
    kind, row = np.divmod(looks.line, block)
    ends[layer_ptr[kind] + nth, row] = looks.low + (looks.high << 16)
    return layer_ptr.astype(np.int32), ends


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
