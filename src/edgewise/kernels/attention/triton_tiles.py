"""Tensors that drive the block kernels on a GPU; a new graph or length compiles nothing."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.items import Items, items
from edgewise.kernels.attention.tiles import FULL, kinds_of
from edgewise.layouts.ragged import Ints, pointer

LEAST = 32  # blocks that one program takes without splitting its row


@dataclass(frozen=True, eq=False)
class Lists:
    """Per row (or column) its blocks, the full ones first; `kind` is that of each partial one."""

    items: Items
    index: Tensor
    kind: Tensor


@dataclass(frozen=True, eq=False)
class Plan:
    """Row r of kind u has the keys low[l, r] ≤ j < high[l, r] of its block, for the layers
    layer_ptr[u] ≤ l < layer_ptr[u+1]: nearly always one."""

    block: int
    rows: Lists
    columns: Lists
    layer_ptr: Tensor
    low: Tensor
    high: Tensor


@lru_cache(maxsize=64)
def plan(graph: Pattern, n: int, m: int, block: int, device: str) -> Plan:
    blocks, kinds, masks = kinds_of(graph, n, m, block)
    row, index = blocks.row.long().numpy(), blocks.index.long().numpy()
    height, width = blocks.shape
    layers = [torch.from_numpy(x).to(device) for x in _layers(masks, block)]
    return Plan(
        block,
        _lists(row, index, kinds, height, device),
        _lists(index, row, kinds, width, device),
        *layers,
    )


def _lists(row: Ints, index: Ints, kinds: Ints, height: int, device: str) -> Lists:
    partial = kinds != FULL
    order = np.lexsort((index, partial, row))
    ptr = pointer(np.bincount(row, minlength=height))
    middle = ptr[:-1] + np.bincount(row[~partial], minlength=height)
    tensors = (torch.from_numpy(x[order].astype(np.int32)).to(device) for x in (index, kinds))
    return Lists(items(ptr, middle, LEAST, device), *tensors)


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
