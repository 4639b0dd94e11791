"""Reductions of rows by segment, on which aggregations are built."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.layouts.segments import Segments


def folded(data: Tensor, parts: Segments) -> Tensor | None:
    """Rows as (batch, segment, place, value...) where all segments are equally long."""
    if not parts.even or parts.width is None:
        return None
    return data.reshape(data.shape[0], parts.count, parts.width, *data.shape[2:])


def _spread_ids(data: Tensor, parts: Segments) -> Tensor:
    shape = (1, -1) + (1,) * (data.ndim - 2)
    return parts.ids.reshape(shape).expand_as(data)


def total(data: Tensor, parts: Segments) -> Tensor:
    """The sum of each segment."""
    rows = folded(data, parts)
    if rows is not None:
        return rows.sum(2)
    shape = (data.shape[0], parts.count, *data.shape[2:])
    return data.new_zeros(shape).index_add(1, parts.ids, data)


def extreme(data: Tensor, parts: Segments, kind: str) -> Tensor:
    """The largest ("amax") or smallest ("amin") element of each segment; ties share."""
    rows = folded(data, parts)
    if rows is not None:
        return rows.amax(2) if kind == "amax" else rows.amin(2)
    shape = (data.shape[0], parts.count, *data.shape[2:])
    start = data.new_full(shape, float("-inf") if kind == "amax" else float("inf"))
    return start.scatter_reduce(1, _spread_ids(data, parts), data, kind)


def padded(data: Tensor, parts: Segments, fill: float) -> Tensor:
    """Rows as (batch, segment, place, value...), shorter segments filled up."""
    rows = folded(data, parts)
    if rows is not None:
        return rows
    table = parts.padded
    found = data[:, table.clamp(min=0)]
    missing = (table < 0).reshape(1, *table.shape, *(1,) * (data.ndim - 2))
    return found.masked_fill(missing, fill)


def softmax(data: Tensor, parts: Segments) -> Tensor:
    """exp(x) over the sum of its segment, row by row."""
    rows = folded(data, parts)
    if rows is not None:
        return rows.softmax(2).reshape(data.shape)
    top = extreme(data.detach(), parts, "amax")
    powers = (data - top.index_select(1, parts.ids)).exp()
    return powers / total(powers, parts).index_select(1, parts.ids)


def unpadded(table: Tensor, parts: Segments) -> Tensor:
    """The rows back from (batch, segment, place, value...)."""
    if parts.even:
        return table.flatten(1, 2)
    places = parts.padded
    flat = table.flatten(1, 2)
    position = torch.empty(len(parts.ids), dtype=torch.int64, device=places.device)
    have = (places >= 0).flatten().nonzero()[:, 0]
    position[places.flatten()[have]] = have
    return flat.index_select(1, position)


def sparsemax(x: Tensor, dim: int) -> Tensor:
    """The point of the simplex nearest to x: max(x − τ, 0) with τ such that it sums to 1.

    >>> sparsemax(torch.tensor([1.0, 1.4, 0.2]), 0)
    tensor([0.3000, 0.7000, 0.0000])

    No point is near what is infinite or not a number.

    >>> sparsemax(torch.tensor([1.0, torch.inf]), 0)
    tensor([nan, nan])
    """
    ordered = x.sort(dim=dim, descending=True).values
    sizes = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype, device=x.device)
    sizes = sizes.reshape([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)])
    totals = ordered.cumsum(dim) - 1
    support = (sizes * ordered > totals).sum(dim, keepdim=True)
    threshold = totals.gather(dim, support.clamp(min=1) - 1) / support
    threshold = threshold.masked_fill(support == 0, torch.nan)
    return (x - threshold).clamp(min=0)
