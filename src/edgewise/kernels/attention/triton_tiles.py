"""Tensors that drive the block kernels on a GPU; a new graph or length compiles nothing."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.items import Items, items, moved, on_device
from edgewise.kernels.attention.tiles import FULL, kinds_of
from edgewise.layouts.ragged import Ints, pointer

LEAST = 32  # blocks that one program takes without splitting its row


@dataclass(frozen=True, eq=False)
class Lists:
    """Per row (or column) its blocks: first full ones, then partial ones with their `kind`."""

    items: Items
    index: Tensor
    kind: Tensor


@dataclass(frozen=True, eq=False)
class Plan:
    """Row r of kind u has the keys low[l, r] ≤ j < high[l, r] of its block, for the layers
    layer_ptr[u] ≤ l < layer_ptr[u+1]; if `one`, that is layer u alone."""

    block: int
    rows: Lists
    columns: Lists
    layer_ptr: Tensor
    low: Tensor
    high: Tensor
    one: bool


@lru_cache(maxsize=64)
def plan(graph: Pattern, n: int, m: int, block: int, device: str) -> Plan:
    blocks, row, kinds, masks = kinds_of(graph, n, m, block)
    index = blocks.index.numpy().astype(np.int64)
    height, width = blocks.shape
    layers = [torch.from_numpy(x) for x in _layers(masks, block)]
    layer_ptr, low, high = on_device(device, *layers)
    one = len(layers[1]) == len(masks) or not len(masks)
    rows = _lists(row, index, kinds, height, device)
    columns = _lists(index, row, kinds, width, device)
    return Plan(block, rows, columns, layer_ptr, low, high, one)


def _lists(row: Ints, index: Ints, kinds: Ints, height: int, device: str) -> Lists:
    partial = kinds != FULL
    order = np.lexsort((index, partial, row))
    ptr = pointer(np.bincount(row, minlength=height))
    middle = ptr[:-1] + np.bincount(row[~partial], minlength=height)
    tensors = [torch.from_numpy(x[order].astype(np.int32)) for x in (index, kinds)]
    work = moved(items(ptr, (middle,), LEAST), device)
    return Lists(work, *on_device(device, *tensors))


def _layers(masks: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each mask as intervals: the l-th run of every row is in layer l of its kind."""
    edge = np.diff(np.pad(masks.astype(np.int8), ((0, 0), (0, 0), (1, 1))), axis=2)
    kind, row, start = np.nonzero(edge == 1)
    stop = np.nonzero(edge == -1)[2]
    line = kind * block + row
    count = np.bincount(line, minlength=len(masks) * block)
    nth = np.arange(len(line)) - pointer(count)[line]
    depth = count.reshape(-1, block).max(axis=1, initial=0)
    layer_ptr = pointer(depth)
    low, high = (np.zeros((max(int(layer_ptr[-1]), 1), block), np.int32) for _ in range(2))
    low[layer_ptr[kind] + nth, row] = start
    high[layer_ptr[kind] + nth, row] = stop
    return layer_ptr.astype(np.int32), low, high
