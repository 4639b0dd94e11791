"""Tensors that drive the block kernels on a GPU; a new graph or length compiles nothing."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.items import items, on_device
from edgewise.kernels.attention.tiles import tiling_of
from edgewise.layouts.ragged import Ints, pointer, ranges
from edgewise.layouts.tiling import FULL

LEAST = 32  # blocks that one program takes without splitting its row
TIMES = 2  # or as many times the mean
LONG = 1.5  # times the median: what is longer starts first
FEW = 16  # layers are blocks of their own where lists grow by at most one in so many


@dataclass(frozen=True, eq=False)
class Lists:
    """Per row (or column) its blocks: first full ones, then partial ones.

    Item t is the row items[t, 0] with the blocks work[items[t, 2] : items[t, 3]]; items[t, 1] is
    -1, or the place of its partial result. A word of `work` is a block, and above it its kind or
    FULL. `split` and `split_ptr` are the rows in several items, as in `Items`. The `first` items
    are much longer than most: the last program to start must not be one of them.
    """

    items: Tensor
    work: Tensor
    split: Tensor
    split_ptr: Tensor
    slots: int
    first: int


@dataclass(frozen=True, eq=False)
class Plan:
    """Row r of kind u has the keys low ≤ j < high of its block, for ends[l, r] = low + 2¹⁶·high
    and the layers layer_ptr[u] ≤ l < layer_ptr[u+1]; if `one`, that is layer u alone."""

    block: int
    rows: Lists
    columns: Lists
    layer_ptr: Tensor
    ends: Tensor
    one: bool


@lru_cache(maxsize=64)
def plan(graph: Pattern, n: int, m: int, block: int, device: str) -> Plan:
    found = tiling_of(graph, n, m, block)
    row, index, kinds = found.listed()
    (height, width), masks = found.shape, found.masks
    layer_ptr, ends = _layers(masks, block)
    one = len(ends) == len(masks) or not len(masks)
    if not one and _added(kinds, layer_ptr) * FEW <= len(kinds):
        row, index, kinds = _in_layers(row, index, kinds, layer_ptr)
        layer_ptr, one = np.arange(len(ends) + 1, dtype=np.int32), True
    rows = _lists(row, index, kinds, height)
    columns = _lists(index, row, kinds, width)
    arrays = [layer_ptr, ends, *rows[0], *columns[0]]
    ptr, both, *moved = on_device(device, *(torch.from_numpy(x) for x in arrays))
    lists = _moved(moved[:4], rows[1]), _moved(moved[4:], columns[1])
    return Plan(block, *lists, ptr, both, one)


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
    order = np.argsort((2 * row + (kinds != FULL)) * (int(index.max(initial=0)) + 1) + index)
    found = items(pointer(np.bincount(row, minlength=height)), (), LEAST, TIMES)
    table = np.stack([x.numpy() for x in (found.row, found.slot, *found.ends)], axis=1)
    work = np.stack([index[order], kinds[order]], axis=1).astype(np.int32)
    size = table[:, 3] - table[:, 2]
    first = int((size > LONG * np.median(size)).sum()) if len(size) else 0
    arrays = [table, work, found.split.numpy(), found.split_ptr.numpy()]
    return arrays, (found.slots, first)


def _moved(arrays: list[Tensor], counts: tuple[int, int]) -> Lists:
    table, work, split, split_ptr = arrays
    return Lists(table, work.view(torch.int64), split, split_ptr, *counts)


def _layers(masks: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Each mask as intervals: the l-th run of every row is in layer l of its kind."""
    if not len(masks):
        return np.zeros(1, np.int32), np.zeros((1, block), np.int32)
    first, last = masks.argmax(2), block - masks[:, :, ::-1].argmax(2)
    count = np.count_nonzero(masks, 2)
    one = ((last - first == count) | (count == 0)).all(1)
    found = np.where(count > 0, first + (last << 16), 0).astype(np.int32)
    if one.all():
        return np.arange(len(masks) + 1, dtype=np.int32), found
    ptr, others = _several_layers(masks[~one], block)
    depth = np.ones(len(masks), np.int64)
    depth[~one] = np.diff(ptr)
    layer_ptr = pointer(depth)
    ends = np.empty((layer_ptr[-1], block), np.int32)
    ends[layer_ptr[:-1][one]] = found[one]
    ends[ranges(layer_ptr[:-1][~one], depth[~one])] = others
    return layer_ptr.astype(np.int32), ends


def _several_layers(masks: np.ndarray, block: int) -> tuple[Ints, np.ndarray]:
    edge = np.diff(np.pad(masks.astype(np.int8), ((0, 0), (0, 0), (1, 1))), axis=2)
    kind, row, start = np.nonzero(edge == 1)
    stop = np.nonzero(edge == -1)[2]
    line = kind * block + row
    count = np.bincount(line, minlength=len(masks) * block)
    nth = np.arange(len(line)) - pointer(count)[line]
    depth = count.reshape(-1, block).max(axis=1, initial=0)
    layer_ptr = pointer(depth)
    ends = np.zeros((layer_ptr[-1], block), np.int32)
    ends[layer_ptr[kind] + nth, row] = start + (stop << 16)
    return layer_ptr, ends
