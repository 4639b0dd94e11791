"""Rows by the matrix of a family that multiplies each, prepared once: typed edges, relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, ranges

TILE = 64  # rows of one product on a GPU
CHUNK = 4096  # rows that are summed into one part of a weight's gradient


@dataclass(frozen=True, eq=False)
class Grouping:
    """Member t has the rows order[ptr[t]:ptr[t+1]].

    A tile (a chunk) k has the places from low[k] on, at most TILE (CHUNK) of them and of one
    member; the chunks of member t are those from chunk_ptr[t] to chunk_ptr[t+1].
    """

    order: Tensor
    ptr: Tensor
    tile_member: Tensor
    tile_low: Tensor
    chunk_member: Tensor
    chunk_low: Tensor
    chunk_ptr: Tensor

    @property
    def members(self) -> int:
        return self.ptr.shape[0] - 1

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All of it, as operators take it."""
        return [getattr(self, name) for name in self.__dataclass_fields__]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> Grouping:
        """Back from `tensors`."""
        return Grouping(*tensors)


def grouping(member: Tensor, count: int) -> Grouping:
    """Row r is multiplied by matrix `member[r]` of a family of `count`.

    >>> found = grouping(torch.tensor([1, 0, 1]), 2)
    >>> found.order.tolist(), found.ptr.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    sizes = torch.bincount(member, minlength=count)
    ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    tiles, chunks = (_pieces(ptr.numpy(), most) for most in (TILE, CHUNK))
    order = member.argsort(stable=True).int()
    return Grouping(order, ptr.int(), *tiles[:2], *chunks)


def _pieces(ptr: Ints, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The member and the start of each piece, and which pieces each member has."""
    parts = -(-np.diff(ptr) // most)
    member = np.repeat(np.arange(len(parts)), parts)
    low = ptr[:-1][member] + ranges(np.zeros(len(parts), np.int64), parts) * most
    ends = np.concatenate([[0], np.cumsum(parts)])
    return _ints(member), _ints(low), _ints(ends)


def _ints(values: Ints) -> Tensor:
    return torch.from_numpy(values.astype(np.int32))
