"""Reductions of rows by segment, on which aggregations are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Segmented(Protocol):
    """Which rows belong together: `edgewise.layouts.segments.Segments`."""

    @property
    def ids(self) -> Tensor: ...
    @property
    def count(self) -> int: ...
    @property
    def even(self) -> bool: ...
    @property
    def width(self) -> int | None: ...
    @property
    def trivial(self) -> bool: ...
    @property
    def sizes(self) -> Tensor: ...
    @property
    def padded(self) -> Tensor: ...


def folded(data: Tensor, parts: Segmented) -> Tensor | None:
    """Rows as (batch, segment, place, value...) where all segments are equally long."""
    if not parts.even or parts.width is None:
        return None
    return data.reshape(data.shape[0], parts.count, parts.width, *data.shape[2:])


def _spread_ids(data: Tensor, parts: Segmented) -> Tensor:
    shape = (1, -1) + (1,) * (data.ndim - 2)
    return parts.ids.reshape(shape).expand_as(data)


def total(data: Tensor, parts: Segmented) -> Tensor:
    """The sum of each segment."""
    rows = folded(data, parts)
    if rows is not None:
        return rows.sum(2)
    shape = (data.shape[0], parts.count, *data.shape[2:])
    return data.new_zeros(shape).index_add(1, parts.ids, data)


def extreme(data: Tensor, parts: Segmented, kind: str) -> Tensor:
    """The largest ("amax") or smallest ("amin") element of each segment; ties share."""
    rows = folded(data, parts)
    if rows is not None:
        return rows.amax(2) if kind == "amax" else rows.amin(2)
    shape = (data.shape[0], parts.count, *data.shape[2:])
    start = data.new_full(shape, float("-inf") if kind == "amax" else float("inf"))
    return start.scatter_reduce(1, _spread_ids(data, parts), data, kind)


def padded(data: Tensor, parts: Segmented, fill: float) -> Tensor:
    """Rows as (batch, segment, place, value...), shorter segments filled up."""
    rows = folded(data, parts)
    if rows is not None:
        return rows
    table = parts.padded
    found = data[:, table.clamp(min=0)]
    missing = (table < 0).reshape(1, *table.shape, *(1,) * (data.ndim - 2))
    return found.masked_fill(missing, fill)


def softmax(data: Tensor, parts: Segmented) -> Tensor:
    """exp(x) over the sum of its segment, row by row."""
    rows = folded(data, parts)
    if rows is not None:
        return rows.softmax(2).reshape(data.shape)
    top = extreme(data.detach(), parts, "amax")
    powers = (data - top.index_select(1, parts.ids)).exp()
    return powers / total(powers, parts).index_select(1, parts.ids)


def unpadded(table: Tensor, parts: Segmented) -> Tensor:
    """The rows back from (batch, segment, place, value...)."""
    import torch

    if parts.even:
        return table.flatten(1, 2)
    places = parts.padded
    flat = table.flatten(1, 2)
    position = torch.empty(len(parts.ids), dtype=torch.int64, device=places.device)
    have = (places >= 0).flatten().nonzero()[:, 0]
    position[places.flatten()[have]] = have
    return flat.index_select(1, position)
