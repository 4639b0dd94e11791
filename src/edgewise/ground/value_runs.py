"""Comparisons of the values of two keys on data: which ranks of the one the other meets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from edgewise.functions import DEFINITIONS
from edgewise.functions.definition import COMBINATION
from edgewise.language import nodes
from edgewise.plan.value_ranks import PairwiseComparison, RankedComparison, ValueColumn

AT_ONCE = 1 << 18  # pairs that are tested


def ranks(values: Tensor) -> tuple[Tensor, Tensor]:
    """All values in order, each once, and the rank of each; NaN, which compares with none, has −1.

    >>> ranks(torch.tensor([0.5, 2.0, 0.5, torch.nan]))
    (tensor([0.5000, 2.0000]), tensor([ 0,  1,  0, -1]))
    """
    order = values.ravel().unique()
    order = order[~order.isnan()]
    return order, torch.searchsorted(order, values).masked_fill(values.isnan(), -1)


def runs(
    comparison: RankedComparison, columns: Sequence[Tensor], order: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Where a comparison holds: rows that have a run of ranks, each with its start and end.

    Columns are (batch, rows), and so is everything found: one run of a row in each of the lists.
    """
    count, ends = len(order), torch.zeros(columns[0].shape, dtype=torch.int64)
    if not count:
        return [(ends > 0, ends, ends)]

    def holds(test: nodes.Apply) -> Callable[[Tensor], Tensor]:
        return lambda at: _value(test, columns, [order[at]]) != 0

    # infinite values are apart: with another infinite one they give NaN
    low, high = int(order[0] == -torch.inf), count - int(order[-1] == torch.inf)
    changes = [_change(holds(test), ends + low, high) for test in comparison.monotone]
    points = torch.stack([ends, ends + low, *changes, ends + max(low, high), ends + count])
    points = points.sort(0).values
    found, start, end, holds_at = [], ends, ends, holds(comparison.test)
    for begin, stop in pairwise(points):
        fine = holds_at(begin.clamp(max=count - 1)) & (begin < stop)
        fresh = fine & (end != begin)
        found.append((fresh & (start < end), start, end))
        start, end = torch.where(fresh, begin, start), torch.where(fine, stop, end)
    return [*found, (start < end, start, end)]


def _change(holds: Callable[[Tensor], Tensor], first: Tensor, high: int) -> Tensor:
    """The first rank from `first` on whose truth differs, or `high`, by bisection."""
    same, other = first, torch.full_like(first, high)
    if not first.numel() or int(first.max()) >= high:
        return other
    truth = holds(first)
    while bool((other - same > 1).any()):
        middle = (same + other) // 2
        as_before = holds(middle) == truth
        same, other = torch.where(as_before, middle, same), torch.where(as_before, other, middle)
    return other


def pairs(
    comparison: PairwiseComparison, columns: Tensor, others: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows of both sides for which a comparison holds: columns are (rows, columns) of each."""
    step = max(1, AT_ONCE // max(len(others), 1))
    ranked = [column[None] for column in others.unbind(1)]
    for at in range(0, len(columns), step):
        part = columns[at : at + step].unbind(1)
        holds = _value(comparison.test, [column[:, None] for column in part], ranked) != 0
        row, other = holds.nonzero(as_tuple=True)
        yield at + row, other


def _value(item: nodes.Expression, columns: Sequence[Tensor], ranked: Sequence[Tensor]) -> Tensor:
    """An expression over columns, computed as compiled rules compute it."""
    match item:
        case ValueColumn(at):
            return ranked[-1 - at] if at < 0 else columns[at]
        case nodes.Apply(function, operands):
            parts = [_value(operand, columns, ranked) for operand in operands]
            definition = DEFINITIONS[function.name]
            found: Tensor = definition.columns(
                list(torch.broadcast_tensors(*parts))
                if definition.kind == COMBINATION
                else parts[0]
            )
            return found
        case nodes.Weight(value=float(value)):
            return torch.full_like(ranked[0], value)
    raise AssertionError(item)
