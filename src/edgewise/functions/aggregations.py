"""Aggregations of the groundings of a rule head: on a list of values, and on rows in segments.

The engine's form takes data (batch, rows, value...) and gives (batch, heads, value...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from edgewise.functions import columns, values
from edgewise.functions.definition import AGGREGATION, OVER, TOP, Definition, Law, ShapeMismatch
from edgewise.functions.dimensions import SCALAR, VECTOR, Shapes
from edgewise.functions.values import of_stacked

if TYPE_CHECKING:
    from torch import Tensor


class Segmented(Protocol):
    """Which rows belong together: `edgewise.layouts.ragged.Segments`."""

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
    """Rows as (batch, segment, position, value...), if all segments are equally long."""
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
    """The largest ("amax") or smallest ("amin") element; ties share the gradient."""
    rows = folded(data, parts)
    if rows is not None:
        return rows.amax(2) if kind == "amax" else rows.amin(2)
    shape = (data.shape[0], parts.count, *data.shape[2:])
    start = data.new_full(shape, float("-inf") if kind == "amax" else float("inf"))
    return start.scatter_reduce(1, _spread_ids(data, parts), data, kind)


def padded(data: Tensor, parts: Segmented, fill: float) -> Tensor:
    """Rows as (batch, segment, position, value...), shorter segments padded with `fill`."""
    rows = folded(data, parts)
    if rows is not None:
        return rows
    table = parts.padded
    found = data[:, table.clamp(min=0)]
    missing = (table < 0).reshape(1, *table.shape, *(1,) * (data.ndim - 2))
    return found.masked_fill(missing, fill)


def softmax(data: Tensor, parts: Segmented) -> Tensor:
    """The softmax of each segment, row by row; 0 where all are −∞."""
    rows = folded(data, parts)
    if rows is not None:
        return columns.softmax(rows, 2).reshape(data.shape)
    top = extreme(data.detach(), parts, "amax")
    top = top.masked_fill(top == -INF, 0)
    powers = (data - top.index_select(1, parts.ids)).exp()
    sums = total(powers, parts)
    return powers / sums.masked_fill(sums == 0, 1).index_select(1, parts.ids)


def unpadded(table: Tensor, parts: Segmented) -> Tensor:
    """The inverse of `padded`: rows from (batch, segment, position, value...)."""
    import torch

    if parts.even:
        return table.flatten(1, 2)
    places = parts.padded
    flat = table.flatten(1, 2)
    position = torch.empty(len(parts.ids), dtype=torch.int64, device=places.device)
    have = (places >= 0).flatten().nonzero()[:, 0]
    position[places.flatten()[have]] = have
    return flat.index_select(1, position)


INF = float("inf")
_aggregation = partial(Definition, AGGREGATION)


def _same(shapes: Shapes, **options: Any) -> Shapes:
    return shapes


def _sizes(data: Tensor, parts: Segmented) -> Tensor:
    return parts.sizes.to(data.dtype).reshape(1, -1, *(1,) * (data.ndim - 2))


def _average(data: Tensor, parts: Segmented) -> Tensor:
    rows = folded(data, parts)
    return rows.mean(2) if rows is not None else total(data, parts) / _sizes(data, parts)


def _std(items: Sequence[Tensor]) -> Tensor:
    import torch

    stacked = values.aligned(items)
    # less one of them: the variance of equal values is 0, not a rounding error with a slope
    shifted = stacked - stacked[0].detach()
    variance = shifted.var(0, correction=0) if len(items) > 1 else items[0] * 0
    positive = variance > 0  # the root has no finite slope at 0
    return torch.where(positive, torch.where(positive, variance, 1).sqrt(), 0 * variance)


def _std_columns(data: Tensor, parts: Segmented) -> Tensor:
    import torch

    if parts.trivial:
        return data * 0
    # less one of each segment: the variance of equal values is 0, not a rounding error with a slope
    data = data - extreme(data.detach(), parts, "amin").index_select(1, parts.ids)
    centred = data - _average(data, parts).index_select(1, parts.ids)
    variance = _average(centred.square(), parts)
    positive = (variance > 0) & (_sizes(data, parts) > 1)
    return torch.where(positive, torch.where(positive, variance, 1).sqrt(), 0 * variance)


def _median(data: Tensor, parts: Segmented) -> Tensor:
    ordered = padded(data, parts, INF).sort(2).values
    middle = ((parts.sizes - 1) // 2).reshape(1, -1, 1, *(1,) * (data.ndim - 2))
    return ordered.gather(2, middle.expand(*ordered.shape[:2], 1, *ordered.shape[3:])).squeeze(2)


def _lse_of(items: Tensor) -> Tensor:
    """-∞ where all are, with gradient 0."""
    import torch

    nothing = (items == -INF).all(0)
    return torch.where(nothing, -INF, torch.where(nothing, 0, items).logsumexp(0))


def _lse(data: Tensor, parts: Segmented) -> Tensor:
    import torch

    top = extreme(data.detach(), parts, "amax")
    top = torch.where(top.isinf(), 0, top)
    found = total((data - top.index_select(1, parts.ids)).exp(), parts)
    nothing = found == 0  # all are -∞
    return torch.where(nothing, 1, found).log() + torch.where(nothing, -INF, top)


def _topk(data: Tensor, parts: Segmented, k: int) -> Tensor:
    import torch

    table = padded(data, parts, -INF)
    best = table.topk(min(k, table.shape[2]), 2).values
    here = torch.arange(best.shape[2], device=data.device) < parts.sizes[:, None]
    return torch.where(here.reshape(1, *here.shape, *(1,) * (data.ndim - 2)), best, 0).sum(2)


def _check_lengths(parts: Segmented, name: str) -> None:
    if parts.width is None and parts.count:
        raise ShapeMismatch(
            f"`{name}` gives vectors of different lengths ({int(parts.sizes.min())} to "
            f"{int(parts.sizes.max())})",
            help="values of a compiled relation have one shape: give rule heads as many groundings",
        )


def _concat(items: Sequence[Tensor]) -> Tensor:
    import torch

    return torch.cat([value.flatten() for value in items])


def _concat_columns(data: Tensor, parts: Segmented) -> Tensor:
    _check_lengths(parts, "concat_agg")
    return padded(data, parts, 0.0).flatten(2)


def _normalised(
    name: str, summary: str, of_vector: Callable[[Tensor], Tensor], of_rows: Callable[..., Tensor],
    in_segments: Callable[[Tensor, Segmented], Tensor],
) -> Definition:  # fmt: skip
    """Shares of a group: a vector of all groundings or, with `agg_terms`, one for each head."""

    def value(items: Sequence[Tensor], agg_terms: Any = None) -> Tensor:
        return of_vector(values.scalars(items, name))

    def on_columns(data: Tensor, parts: Segmented, agg_terms: Any = None) -> Tensor:
        _check_lengths(parts, name)
        if data.ndim > 2:
            raise ShapeMismatch(
                f"`{name}` without agg_terms takes scalars",
                help="name variables of the rule head: agg_terms=[V.J]",
            )
        return of_rows(padded(data, parts, -INF))

    def shares(items: Sequence[Tensor]) -> list[Tensor]:
        import torch

        stacked = values.aligned(items)
        numbers = stacked.reshape(len(items), -1)
        found = torch.stack([of_vector(column) for column in numbers.unbind(1)], 1)
        return list(found.reshape(stacked.shape).unbind(0))

    def shape(shapes: Shapes, agg_terms: Any = None) -> Shapes:
        return VECTOR if () in shapes else frozenset()

    laws = {Law.NORMALISES, Law.NEEDS_TABLE}
    shared = (shares, in_segments)
    return _aggregation(name, summary, value, on_columns, shape, laws, (OVER,), shares=shared)


def _chosen(name: str, word: str, kind: str) -> Definition:
    """1 for the first of the best of a group, else 0; in a rule, only that one holds."""

    def first(x: Tensor, dim: int = 0) -> Tensor:
        best = x == (x.amax(dim, keepdim=True) if kind == "amax" else x.amin(dim, keepdim=True))
        return (best & (best.cumsum(dim) == 1)).to(x.dtype)

    def in_segments(data: Tensor, parts: Segmented) -> Tensor:
        import torch

        top = extreme(data, parts, kind).index_select(1, parts.ids)
        places = torch.arange(data.shape[1], device=data.device, dtype=torch.float64)
        places = places.reshape(1, -1, *(1,) * (data.ndim - 2))
        places = torch.where(data == top, places, INF)
        found = extreme(places, parts, "amin").index_select(1, parts.ids)
        return (places == found).to(data.dtype)

    made = _normalised(
        name, f"only the rule head with the {word} value of a group, the first of equals",
        first, lambda table: first(table, -1), in_segments,
    )  # fmt: skip

    return replace(made, gradient="that of the value chosen")


_EACH = {Law.ELEMENTWISE, Law.ORDER_FREE, Law.KEEPS_ONE}
_EXTREME = {*_EACH, Law.MONOTONE, Law.ASSOCIATIVE, Law.IDEMPOTENT}

AGGREGATIONS = (
    _aggregation(
        "sum_agg", "the sum", of_stacked(lambda x: x.sum(0)), total, _same,
        {*_EACH, Law.MONOTONE, Law.LINEAR, Law.ASSOCIATIVE}, kernel="sum"),
    _aggregation(
        "avg_agg", "the mean", of_stacked(lambda x: x.mean(0)), _average, _same,
        {*_EACH, Law.MONOTONE, Law.LINEAR, Law.IDEMPOTENT}, kernel="mean", aliases=("mean_agg",)),
    _aggregation(
        "max_agg", "the largest, element by element", of_stacked(lambda x: x.amax(0)),
        lambda data, parts: extreme(data, parts, "amax"), _same, _EXTREME,
        gradient="shared equally among ties", kernel="max"),
    _aggregation(
        "min_agg", "the smallest, element by element", of_stacked(lambda x: x.amin(0)),
        lambda data, parts: extreme(data, parts, "amin"), _same, _EXTREME,
        gradient="shared equally among ties", kernel="min"),
    _aggregation(
        "count_agg", "the number of groundings",
        lambda items: items[0].new_tensor(float(len(items))),
        lambda data, parts: parts.sizes.to(data.dtype).reshape(1, -1),
        lambda shapes: SCALAR if shapes else frozenset(), {Law.ORDER_FREE}, gradient="0"),
    _aggregation(
        "concat_agg", "all numbers as one vector, groundings in order", _concat, _concat_columns,
        lambda shapes: VECTOR if shapes else frozenset(), {Law.NEEDS_TABLE}),
    _aggregation(
        "std_agg", "the standard deviation: √ of the mean square from the mean", _std,
        _std_columns, _same, {Law.ELEMENTWISE, Law.ORDER_FREE}, gradient="0 where all are equal"),
    _aggregation(
        "median_agg", "the median; of two in the middle the smaller",
        of_stacked(lambda x: x.median(0).values), _median, _same,
        {*_EACH, Law.MONOTONE, Law.IDEMPOTENT, Law.NEEDS_TABLE}),
    _aggregation(
        "lse_agg", "log Σ eˣ, a smooth maximum", of_stacked(_lse_of), _lse, _same,
        {*_EACH, Law.MONOTONE, Law.ASSOCIATIVE}),
    _normalised(
        "softmax_agg", "eˣ over the sum of all eˣ of a group; 0 where all are −∞", values.softmax,
        lambda table: columns.softmax(table, -1), softmax),
    _normalised(
        "sparsemax_agg", "the nearest numbers ≥ 0 that sum to 1 in a group", values.sparsemax,
        lambda table: columns.sparsemax(table, -1),
        lambda data, parts: unpadded(columns.sparsemax(padded(data, parts, -INF), 2), parts)),
    _chosen("argmax_agg", "largest", "amax"),
    _chosen("argmin_agg", "smallest", "amin"),
    _aggregation(
        "topk_agg", "the sum of the k largest",
        of_stacked(lambda x, k: x.topk(min(k, len(x)), 0).values.sum(0)), _topk, _same,
        {*_EACH, Law.MONOTONE, Law.NEEDS_TABLE}, (TOP,)),
)  # fmt: skip
