"""Aggregations over the groundings of a head: one function each, on rows in segments.

`apply(name, data, segments)` takes data (batch, rows, value...) and gives (batch, heads, value...).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.aggregations.reduce import (
    extreme,
    folded,
    padded,
    softmax,
    sparsemax,
    total,
    unpadded,
)
from edgewise.checks.mismatch import ShapeMismatch
from edgewise.layouts.segments import Segments

__all__ = ["AGGREGATIONS", "NORMALISATIONS", "aggregate"]


def _sizes(data: Tensor, parts: Segments) -> Tensor:
    return parts.sizes.to(data.dtype).reshape(1, -1, *(1,) * (data.ndim - 2))


def _average(data: Tensor, parts: Segments) -> Tensor:
    rows = folded(data, parts)
    return rows.mean(2) if rows is not None else total(data, parts) / _sizes(data, parts)


def _std(data: Tensor, parts: Segments) -> Tensor:
    if parts.trivial:
        return data * 0
    mean = _average(data, parts)
    centred = data - mean.index_select(1, parts.ids)
    variance = _average(centred.square(), parts)
    positive = (variance > 0) & (_sizes(data, parts) > 1)
    return torch.where(positive, torch.where(positive, variance, 1).sqrt(), 0 * variance)


def _median(data: Tensor, parts: Segments) -> Tensor:
    ordered = padded(data, parts, float("inf")).sort(2).values
    middle = ((parts.sizes - 1) // 2).reshape(1, -1, 1, *(1,) * (data.ndim - 2))
    return ordered.gather(2, middle.expand(*ordered.shape[:2], 1, *ordered.shape[3:])).squeeze(2)


def _lse(data: Tensor, parts: Segments) -> Tensor:
    top = extreme(data.detach(), parts, "amax")
    powers = (data - top.index_select(1, parts.ids)).exp()
    return total(powers, parts).log() + top


def _topk(data: Tensor, parts: Segments, k: int) -> Tensor:
    table = padded(data, parts, float("-inf"))
    best = table.topk(min(k, table.shape[2]), 2).values
    return torch.where(best == float("-inf"), 0, best).sum(2)


def _equal_lengths(parts: Segments, name: str) -> None:
    if parts.width is None and parts.count:
        raise ShapeMismatch(
            f"`{name}` gives vectors of different lengths ({int(parts.sizes.min())} to "
            f"{int(parts.sizes.max())})",
            help="a compiled relation has values of one shape: give every head as many groundings",
        )


def _concat(data: Tensor, parts: Segments) -> Tensor:
    _equal_lengths(parts, "concat_agg")
    return padded(data, parts, 0.0).flatten(2)


def _vector(data: Tensor, parts: Segments, normal: Callable[[Tensor], Tensor], name: str) -> Tensor:
    _equal_lengths(parts, name)
    if data.ndim > 2:
        raise ShapeMismatch(
            f"`{name}` without agg_terms takes scalars", help="name head variables: agg_terms=[V.J]"
        )
    return normal(padded(data, parts, float("-inf")))


AGGREGATIONS: dict[str, Callable[..., Tensor]] = {
    "sum_agg": total,
    "avg_agg": _average,
    "max_agg": lambda data, parts: extreme(data, parts, "amax"),
    "min_agg": lambda data, parts: extreme(data, parts, "amin"),
    "count_agg": lambda data, parts: parts.sizes.to(data.dtype).reshape(1, -1),
    "concat_agg": _concat,
    "std_agg": _std,
    "median_agg": _median,
    "lse_agg": _lse,
    "topk_agg": _topk,
    "softmax_agg": lambda d, p: _vector(d, p, lambda t: t.softmax(-1), "softmax_agg"),
    "sparsemax_agg": lambda d, p: _vector(d, p, lambda t: sparsemax(t, -1), "sparsemax_agg"),
}

NORMALISATIONS: dict[str, Callable[[Tensor, Segments], Tensor]] = {
    "softmax_agg": softmax,
    "sparsemax_agg": lambda data, parts: unpadded(
        sparsemax(padded(data, parts, float("-inf")), 2), parts
    ),
}


def aggregate(name: str, data: Tensor, parts: Segments, **arguments: Any) -> Tensor:
    """One value for each segment.

    >>> from edgewise.layouts.segments import segments
    >>> rows = torch.tensor([[1.0, 2.0, 5.0]])
    >>> aggregate("sum_agg", rows, segments(torch.tensor([0, 0, 1]), 2))
    tensor([[3., 5.]])
    """
    keeps = name in (
        "sum_agg",
        "avg_agg",
        "max_agg",
        "min_agg",
        "median_agg",
        "lse_agg",
        "topk_agg",
    )
    if parts.trivial and keeps:
        return data
    return AGGREGATIONS[name](data, parts, **arguments)
