"""Products with the members of a family in plain torch: one after another, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from edgewise.kernels.aggregate.grouping import Grouping

name = "per_member"
BLOCK = 1 << 13  # rows that stay in the cache from being gathered to being written


def _blocks(groups: Grouping) -> Iterator[tuple[int, Tensor]]:
    ends = groups.ptr.tolist()
    for member, (low, high) in enumerate(pairwise(ends)):
        for at in range(low, high, BLOCK):
            yield member, groups.order[at : min(at + BLOCK, high)]


def linear(x: Tensor, family: Tensor, groups: Grouping) -> Tensor:
    out = x.new_empty(x.shape[0], family.shape[1])
    for member, rows in _blocks(groups):
        out[rows] = x.index_select(0, rows) @ family[member].T
    return out


def outer(y: Tensor, x: Tensor, groups: Grouping) -> Tensor:
    members = groups.ptr.shape[0] - 1
    out = x.new_zeros(members, y.shape[1], x.shape[1])
    for member, rows in _blocks(groups):
        torch.addmm(
            out[member],
            y.index_select(0, rows).T,
            x.index_select(0, rows),
            out=out[member],
        )
    return out
