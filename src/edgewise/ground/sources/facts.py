"""Facts: those given as data, and those of the program, whose values are weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from edgewise.ground.constants import Constants
from edgewise.ground.index import index_of, pack
from edgewise.ground.sources.source import Live, Source, canonical, together, value_rows


def table_source(
    name: str,
    keys: Tensor,
    values: Callable[[], Tensor | Sequence[Tensor]],
    leaves: Sequence[Tensor],
) -> Source:
    """Facts given as data, in key order; `leaves` are the tensors among their values."""

    def column() -> Tensor:
        found = values()
        if isinstance(found, Tensor):
            return value_rows(found)
        return together([canonical(value) for value in found], name)

    stored, live = column(), Live(leaves, column) if leaves else None
    return Source(index_of(keys), stored=stored, shape=tuple(stored.shape[1:]), live=live)


def fact_source(
    name: str,
    keys: Sequence[tuple[Any, ...]],
    values: Callable[[], Sequence[Tensor]],
    leaves: Sequence[Tensor],
    constants: Constants,
    weights: Mapping[tuple[Any, ...], str],
) -> Source:
    """Facts as atoms; those of the program take their values from weights at every step."""
    arity = len(keys[0]) if keys else 0
    table = constants.keys(keys, arity)
    order: Tensor | None = None
    if arity:
        (codes,) = pack(list(table.unbind(1)))
        order = codes.argsort(stable=True)
        table = table[order]
        keys = [keys[i] for i in order.tolist()]

    def column() -> Tensor:
        found = _stacked(name, values())
        return found if order is None else found.index_select(0, order.to(found.device))

    learnt = tuple((row, weights[key]) for row, key in enumerate(keys) if key in weights)
    stored, live = column(), Live(leaves, column) if leaves else None
    shape = tuple(stored.shape[1:])
    return Source(index_of(table), None, stored, shape=shape, weights=learnt, live=live)


def _stacked(name: str, values: Sequence[Tensor]) -> Tensor:
    alike = len(values) > 1 and all(value is values[0] for value in values)
    stacked = together([canonical(v) for v in (values[:1] if alike else values)], name)
    return stacked.repeat(len(values), *(1,) * (stacked.ndim - 1)) if alike else stacked
