"""Operations along edges in plain torch: they take every case and define the results.

Edges are gathered some at a time, so that no more than that is ever materialised.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from edgewise.kernels.edges.groups import Grouping
from edgewise.kernels.edges.index import EdgeIndex

CHUNK = 1 << 22  # numbers gathered at a time
BLOCK = 1 << 13  # rows that stay in the cache from being gathered to being written


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of sums of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _chunks(index: EdgeIndex, d: int) -> list[tuple[Tensor, Tensor, slice]]:
    step, ids, rows = max(CHUNK // max(d, 1), 1), index.rows.ids, index.rows.index
    parts = (slice(at, at + step) for at in range(0, index.edges, step))
    return [(ids[part], rows[part], part) for part in parts]


def segment_sum(
    x: Tensor, scale: Tensor | None, column_scale: Tensor | None, index: EdgeIndex
) -> Tensor:
    kind = wide(x.dtype)
    found = x.new_zeros(index.rows.segments, x.shape[1], dtype=kind)
    for ids, rows, part in _chunks(index, x.shape[1]):
        read = x.index_select(0, rows).to(kind)
        if scale is not None:
            read = read * scale[part, None].to(kind)
        found.index_add_(0, ids, read)
    return found.to(x.dtype)


def edge_dots(y: Tensor, x: Tensor, index: EdgeIndex) -> Tensor:
    kind = wide(x.dtype)
    found = x.new_empty(index.edges)
    for ids, rows, part in _chunks(index, x.shape[1]):
        pair = y.index_select(0, ids).to(kind), x.index_select(0, rows).to(kind)
        found[part] = (pair[0] * pair[1]).sum(-1).to(x.dtype)
    return found


def segment_extreme(x: Tensor, largest: bool, index: EdgeIndex) -> tuple[Tensor, Tensor]:
    """Empty segments have -∞ (∞ for the smallest), and no edge has it."""
    worst = -torch.inf if largest else torch.inf
    found = x.new_full((index.rows.segments, x.shape[1]), worst)
    for ids, rows, _ in _chunks(index, x.shape[1]):
        places = ids.long()[:, None].expand(-1, x.shape[1])
        kind = "amax" if largest else "amin"
        found.scatter_reduce_(0, places, x.index_select(0, rows), kind)
    ties = torch.zeros_like(found, dtype=wide(x.dtype))
    for ids, rows, _ in _chunks(index, x.shape[1]):
        same = x.index_select(0, rows) == found.index_select(0, ids)
        ties.index_add_(0, ids, same.to(ties.dtype))
    return found, ties.to(x.dtype)


def equal_sum(a: Tensor, x: Tensor, y: Tensor, index: EdgeIndex) -> Tensor:
    kind = wide(a.dtype)
    found = a.new_zeros(index.rows.segments, a.shape[1], dtype=kind)
    for ids, rows, _ in _chunks(index, x.shape[1]):
        same = x.index_select(0, rows) == y.index_select(0, ids)
        found.index_add_(0, ids, torch.where(same, a.index_select(0, rows), 0).to(kind))
    return found.to(a.dtype)


def _blocks(groups: Grouping) -> Iterator[tuple[int, Tensor]]:
    for member, (low, high) in enumerate(pairwise(groups.ptr.tolist())):
        for at in range(low, high, BLOCK):
            yield member, groups.order[at : min(at + BLOCK, high)]


def grouped_linear(x: Tensor, family: Tensor, groups: Grouping) -> Tensor:
    out = x.new_empty(x.shape[0], family.shape[1])
    for member, rows in _blocks(groups):
        out[rows] = x.index_select(0, rows) @ family[member].T
    return out


def grouped_outer(y: Tensor, x: Tensor, groups: Grouping) -> Tensor:
    out = x.new_zeros(groups.members, y.shape[1], x.shape[1])
    for member, rows in _blocks(groups):
        each = y.index_select(0, rows).T, x.index_select(0, rows)
        torch.addmm(out[member], *each, out=out[member])
    return out


OPERATIONS = {
    function.__name__: function
    for function in (
        segment_sum, edge_dots, segment_extreme, equal_sum, grouped_linear, grouped_outer,
    )
}  # fmt: skip
