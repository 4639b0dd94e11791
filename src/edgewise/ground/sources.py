"""Data relations: which keys they hold, and where their values come from at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.facts import DuplicateFact
from edgewise.checks.mismatch import ShapeMismatch
from edgewise.errors import EdgewiseError, caller
from edgewise.ground.constants import Constants
from edgewise.ground.index import Grid, Index, Keys, index_of, pack
from edgewise.ground.inputs import BadInput, ragged, rows
from edgewise.reference.values import canonical


class DtypeMismatch(EdgewiseError):
    """A model computes in one precision; an input in another would be converted in silence."""

    code = "dtype-mismatch"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3, dtype=torch.float64))"
    instead = (
        "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).double()"
        "(a=torch.ones(3, dtype=torch.float64))"
    )


@dataclass(frozen=True, eq=False)
class Source:
    """A data relation: its index, and how to find its column (batch, rows, value...).

    `order` puts values that were given row by row into key order.
    """

    index: Index
    order: Tensor | None = None
    stored: Tensor | None = None
    shape: tuple[int, ...] = ()  # of one value
    batched: bool = False
    dense: bool = False
    weights: tuple[tuple[int, str], ...] = ()  # rows that are facts of the program

    def data(
        self, given: Tensor | None, weights: Mapping[str, Tensor], dtype: torch.dtype
    ) -> Tensor:
        if given is not None and self.dense:
            lead = given if self.batched else given.unsqueeze(0)
            return lead.reshape(lead.shape[0], self.index.rows, *self.shape)
        assert self.stored is not None
        data = self.stored
        if self.order is not None:
            data = data.index_select(0, self.order)
        if self.weights:
            parts = list(data.unbind(0))
            for row, name in self.weights:
                parts[row] = canonical(weights[name].to(dtype))
            data = _stack(parts)
        return data.to(dtype).unsqueeze(0)


def _stack(parts: Sequence[Tensor]) -> Tensor:
    shapes = {tuple(part.shape) for part in parts}
    if len(shapes) > 1:
        raise ShapeMismatch(
            f"facts of one relation have values of different shapes: {sorted(shapes)}",
            help="a compiled relation has values of one shape",
        )
    return torch.stack(list(parts))


def dense_source(
    name: str, tensor: Tensor, arity: int, inner: set[int], shape: tuple[int, ...] | None = None
) -> Source:
    """A float tensor [batch,] keys..., value...; `inner` are the value lengths weights expect."""
    sizes = tuple(tensor.shape) if shape is None else shape
    extra = len(sizes) - arity
    if extra < 0 or extra > 3:
        raise BadInput(
            f"`{name}` has {arity} keys, but the tensor has {len(sizes)} axes {sizes}",
            caller(),
            f"give (keys..., value...) or (batch, keys..., value...): at least {arity} axes",
        )
    rank, batched = _layout(name, sizes, extra, inner)
    first = 1 if batched else 0
    grid = Grid(sizes[first : first + arity])
    return Source(grid, shape=sizes[len(sizes) - rank :], batched=batched, dense=True)


def _layout(name: str, sizes: tuple[int, ...], extra: int, inner: set[int]) -> tuple[int, bool]:
    """The rank of a value, and whether there is a batch axis."""
    if extra == 0:
        return 0, False
    if inner and sizes[-1] not in inner:
        wanted = " or ".join(map(str, sorted(inner)))
        raise ShapeMismatch(
            f"`{name}` has values of length {sizes[-1]}, but its weights take {wanted}",
            caller(),
            "the last axis is the value: (keys..., value) or (batch, keys..., value)",
        )
    return {1: (1, False), 2: (1, True), 3: (2, True)}[extra]


def rows_source(name: str, given: rows, arity: int, sample: int | None = None) -> Source:
    """Explicit keys, checked for repetition, with their values if they have any."""
    keys = given.keys
    if keys.shape[0] != arity:
        raise BadInput(
            f"`{name}` has {arity} terms, but the keys are {tuple(keys.shape)}",
            caller(),
            f"give an integer tensor of shape ({arity}, rows)",
        )
    if sample is not None:
        first = torch.full((1, keys.shape[1]), sample)
        keys = torch.cat([first, keys.cpu()])
    return keyed(name, keys.T.cpu(), None if given.values is None else given.values)


def keyed(name: str, keys: Tensor, values: Tensor | None) -> Source:
    """Keys (rows, arity) in any order, with values (rows, value...) or none."""
    order = None
    if keys.shape[1]:
        (codes,) = pack(list(keys.unbind(1)))
        ordered, order = codes.sort(stable=True)
        repeated = (ordered[1:] == ordered[:-1]).nonzero()
        if len(repeated):
            key = keys[order[repeated[0, 0]]].tolist()
            raise DuplicateFact(
                f"`{name}` is given the key {tuple(key)} twice",
                caller(),
                "give each key once; combine the values before",
            )
        keys = keys[order]
        if bool((order == torch.arange(len(order))).all()):
            order = None
    stored = torch.ones(len(keys)) if values is None else _canonical_rows(values)
    return Source(index_of(keys), order, stored, shape=tuple(stored.shape[1:]))


def _canonical_rows(values: Tensor) -> Tensor:
    if values.ndim >= 2 and values.shape[1:].numel() == 1:
        return values.reshape(len(values))
    return values.squeeze(-1) if values.ndim == 3 and values.shape[2] == 1 else values


def fact_source(
    name: str,
    keys: Sequence[tuple[Any, ...]],
    values: Sequence[Tensor],
    constants: Constants,
    weights: Mapping[tuple[Any, ...], str],
) -> Source:
    """Facts as atoms; those of the program take their values from weights at every step."""
    arity = len(keys[0]) if keys else 0
    table = constants.keys(keys, arity)
    stacked = _stack([canonical(v) for v in values])
    order = None
    if arity:
        (codes,) = pack(list(table.unbind(1)))
        order = codes.argsort(stable=True)
        table = table[order]
        keys = [keys[i] for i in order.tolist()]
        stacked = stacked.index_select(0, order)
    learnt = tuple((row, weights[key]) for row, key in enumerate(keys) if key in weights)
    return Source(index_of(table), None, stacked, shape=tuple(stacked.shape[1:]), weights=learnt)


def ragged_source(name: str, batch: ragged, arity: int) -> Source:
    """Samples of different sizes as rows with the sample's number as first key."""
    parts, values = [], []
    for number, item in enumerate(batch.samples):
        given = _sample_rows(name, item, arity)
        first = torch.full((1, given.keys.shape[1]), number)
        parts.append(torch.cat([first, given.keys.cpu()]).T)
        values.append(given.values)
    keys = torch.cat(parts) if parts else torch.zeros(0, arity + 1, dtype=torch.int64)
    if any(v is None for v in values) or not values:
        return keyed(name, keys, None)
    return keyed(name, keys, torch.cat([v for v in values if v is not None]))


def _sample_rows(name: str, item: Any, arity: int) -> rows:
    if isinstance(item, rows):
        return item
    tensor = torch.as_tensor(item)
    if not tensor.is_floating_point():
        return rows(tensor)
    if tensor.ndim < arity:
        raise BadInput(
            f"a sample of `{name}` has {tensor.ndim} axes, its relation {arity} keys",
            caller(),
            "a dense sample is (keys..., value...)",
        )
    grid = Grid(tuple(tensor.shape[:arity]))
    keys = torch.stack([grid.column(p) for p in range(arity)]) if arity else torch.zeros(0, 1)
    return rows(keys.long(), tensor.reshape(grid.rows, *tensor.shape[arity:]))


__all__ = [
    "Keys",
    "Source",
    "dense_source",
    "fact_source",
    "ragged_source",
    "rows_source",
]
