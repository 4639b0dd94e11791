"""Masks over data where rows are appended: the pairs of all rows that may come, known from the
start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs import Pattern, from_edges, full, per_head
from edgewise.grow.axes import refusal
from edgewise.inputs.kinds import numbers
from edgewise.layouts.ragged import Ints
from edgewise.physical.attention.step import AttentionStep, SortedTokens
from edgewise.physical.step import RelationStep, Step

PAIRS = 1 << 22  # that are looked at together


@dataclass(frozen=True, eq=False)
class DataMask:
    """The pairs of a mask among `rows` tokens, which a pattern has in some order of them."""

    pattern: Pattern
    order: SortedTokens | None
    rows: int

    def pairs(self, first: int, last: int) -> tuple[Ints, Ints]:
        """The pairs (i, j) of the queries from `first` to `last`, by query."""
        if self.order is None:
            found = self.pattern.rows_between(self.rows, self.rows, first, last).expand()
            i, j = found.edges().numpy()
            return i + first, j
        places = self.order.back[first:last].numpy()
        parts = [self.pattern.rows_between(self.rows, self.rows, p, p + 1) for p in places]
        each = [np.sort(self.order.key.numpy()[part.edges()[1].numpy()]) for part in parts]
        i = np.repeat(np.arange(first, last), [len(keys) for keys in each])
        return i, np.concatenate(each)

    def keys(self, row: int, device: torch.device) -> Tensor | None:
        """The keys that a row attends to; None if all so far."""
        _, keys = self.pairs(row, row + 1)
        return None if len(keys) == row + 1 else torch.from_numpy(keys).to(device)

    def graph(self, first: int, last: int) -> Pattern:
        """The pairs of some queries, which are numbered from 0."""
        i, j = self.pairs(first, last)
        return from_edges(torch.from_numpy(np.stack([i - first, j])))


def data_masks(step: Step) -> dict[str, AttentionStep]:
    """The attention of a step whose pairs data chooses, by relation."""
    found = {}
    for part in step.executable.steps:
        for one in part.steps if isinstance(part, RelationStep) else ():
            if isinstance(one, AttentionStep) and (one.choice or one.node.pairs.listed):
                found[one.node.head.relation] = one
    return found


def causal_mask(step: AttentionStep, rows: int, *, itself: bool = True) -> DataMask:
    """The mask of an attention among some rows; refused where a row attends to later ones or to
    none, or not to `itself` where that matters: as the first of those to come it has no other."""
    relation, where = step.node.head.relation, step.rule.place
    pattern = full() if step.pattern is None else step.pattern
    if isinstance(pattern, per_head):
        raise refusal(f"each head of `{relation}` has a mask of its own", where)
    found = DataMask(pattern, step.order, rows)
    for first, last in _parts(found):
        i, j = found.pairs(first, last)
        later = np.flatnonzero(j > i)
        if len(later):
            pair = f"row {i[later[0]]} attends to row {j[later[0]]}, which is later"
            raise refusal(f"in the mask of `{relation}` {pair}", where)
        lacking = np.setdiff1d(np.arange(first, last), i[i == j] if itself else i)
        if len(lacking):
            what = "does not attend to itself, so it may have" if itself else "has"
            raise refusal(f"in the mask of `{relation}` row {lacking[0]} {what} no key", where)
    return found


def _parts(mask: DataMask) -> Iterator[tuple[int, int]]:
    step = max(PAIRS // max(mask.rows, 1), 1)
    for first in range(0, mask.rows, step):
        yield first, min(first + step, mask.rows)


def lengthened(
    inputs: Mapping[str, Any], axes: Mapping[str, int], rows: int
) -> dict[str, numbers | Tensor]:
    """Inputs like these with this many rows, of which only the shapes are read."""

    def longer(values: Tensor, axis: int) -> Tensor:
        shape = (*values.shape[:axis], rows, *values.shape[axis + 1 :])
        return values.new_zeros(()).expand(shape)

    return {
        name: numbers(longer(item.values, axes[name]))
        if isinstance(item, numbers)
        else longer(item, axes[name])
        for name, item in inputs.items()
    }
