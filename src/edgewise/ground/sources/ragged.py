"""Samples of different sizes, one after another: the number of the sample is the first key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from edgewise.checks.arity import ArityMismatch
from edgewise.checks.mismatch import ShapeMismatch
from edgewise.checks.wording import terms
from edgewise.errors import caller
from edgewise.ground.index import Grid
from edgewise.ground.inputs import ragged, rows
from edgewise.ground.sources.keyed import check_arity, keyed
from edgewise.ground.sources.source import Live, Source, value_rows


def ragged_source(name: str, batch: ragged, arity: int) -> Source:
    """Samples of different sizes as rows with the sample's number as first key."""
    parts, lengths = [], []
    for number, item in enumerate(batch.samples):
        given = _sample_rows(name, item, arity)
        check_arity(name, given, arity)
        first = torch.full((1, given.keys.shape[1]), number)
        parts.append(torch.cat([first, given.keys.cpu()]).T)
        if isinstance(item, Tensor) and item.is_floating_point():
            lengths.append(torch.tensor(item.shape[:arity], dtype=torch.int64))
    keys = torch.cat(parts) if parts else torch.zeros(0, arity + 1, dtype=torch.int64)
    counts = [len(part) for part in parts]

    def joined() -> Tensor | None:
        return _joined(name, [_sample_values(item, arity) for item in batch.samples], counts)

    def column() -> Tensor:
        found = joined()
        assert found is not None
        return value_rows(found)

    source = keyed(name, keys, joined())
    held = [item.values if isinstance(item, rows) else item for item in batch.samples]
    leaves = [item for item in held if item is not None and item.is_floating_point()]
    dense = bool(parts) and len(lengths) == len(parts)
    return replace(
        source,
        lengths=torch.stack(lengths, 1) if dense else None,
        live=Live(leaves, column) if leaves else None,
    )


def _sample_values(item: rows | Tensor, arity: int) -> Tensor | None:
    if isinstance(item, rows):
        return item.values
    if not item.is_floating_point():
        return None
    return item.reshape(math.prod(item.shape[:arity]), *item.shape[arity:])


def _joined(name: str, values: Sequence[Tensor | None], counts: Sequence[int]) -> Tensor | None:
    """The values of all samples; a fact without a value has value 1."""
    if all(value is None for value in values):
        return None
    like = next(value for value in values if value is not None)
    full = [like.new_ones(n) if v is None else v for v, n in zip(values, counts, strict=True)]
    shapes = {tuple(value.shape[1:]) for value in full}
    if len(shapes) > 1:
        raise ShapeMismatch(
            f"the samples of `{name}` have values of different shapes: {sorted(shapes)}",
            caller(),
            "only the number of keys may differ between samples",
        )
    return torch.cat(full)


def _sample_rows(name: str, item: rows | Tensor, arity: int) -> rows:
    if isinstance(item, rows):
        return item
    if not item.is_floating_point():
        return rows(item)
    if not arity <= item.ndim <= arity + 2:
        raise ArityMismatch(
            f"`{name}` has {terms(arity)}, but a sample has {item.ndim} axes {tuple(item.shape)}",
            caller(),
            "a dense sample is (keys..., value...)",
        )
    grid = Grid(tuple(item.shape[:arity]))
    keys = torch.stack([grid.column(p) for p in range(arity)]) if arity else torch.zeros(0, 1)
    return rows(keys.long(), _sample_values(item, arity))
