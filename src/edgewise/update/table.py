"""A relation that is known so far: its keys, and the value of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.functions.dimensions import show
from edgewise.functions.errors import ShapeMismatch
from edgewise.ground.index import Index, distinct_rows, index_of, locate
from edgewise.run.column import Column


@dataclass(frozen=True, eq=False)
class Table:
    """`data` is (rows, value...), in the order of the index."""

    index: Index
    data: Tensor

    @property
    def column(self) -> Column:
        return Column(self.data.unsqueeze(0))

    def with_rows(self, keys: Tensor, values: Tensor) -> Table:
        """The same with values set at keys, new ones among them; keys are sorted."""
        old = keys_of(self.index)
        if not len(old):
            return Table(index_of(keys), values)
        index = index_of(distinct_rows(torch.cat([old, keys])))
        data = values.new_empty(index.rows, *values.shape[1:])
        if len(old) and self.data.shape[1:] != values.shape[1:]:
            return Table(index, self._mixed(index, keys, values))
        data[places(index, old)] = self.data
        data[places(index, keys)] = values
        return Table(index, data)

    def _mixed(self, index: Index, keys: Tensor, values: Tensor) -> Tensor:
        """Values of another shape can only replace all that were there."""
        if index.rows != len(keys):
            raise ShapeMismatch(
                f"new values are {show(tuple(values.shape[1:]))}, those before "
                f"{show(tuple(self.data.shape[1:]))}",
                help="a compiled relation has values of one shape",
            )
        return values

    def recoded(self, code: Callable[[Tensor], Tensor]) -> Table:
        return Table(index_of(code(keys_of(self.index))), self.data)


def keys_of(index: Index) -> Tensor:
    """(rows, arity)."""
    columns = [index.column(p) for p in range(index.arity)]
    return torch.stack(columns, 1) if columns else torch.zeros(index.rows, 0, dtype=torch.int64)


def places(index: Index, keys: Tensor) -> Tensor:
    """The row of each key; all of them hold."""
    if not keys.shape[1]:
        return torch.zeros(len(keys), dtype=torch.int64)
    return locate(index, list(keys.unbind(1)))
