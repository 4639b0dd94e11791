"""Columns of values, and what rules read while they are lowered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from edgewise.functions import columns
from edgewise.kernels.kernel_choices import watched
from edgewise.physical.lowering import Lowering, PlanStep


@dataclass(frozen=True, eq=False)
class Column:
    """`data` is (batch, rows, value...); batch 1 and rows 1 stand for "the same in each"."""

    data: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value."""
        return tuple(self.data.shape[2:])

    @property
    def rank(self) -> int:
        return self.data.ndim - 2

    @property
    def rows(self) -> int:
        return self.data.shape[1]

    def take(self, rows: Tensor | None) -> Column:
        """The values at `rows`; None means all, in order."""
        return self if rows is None else Column(self.data.index_select(1, rows))

    def expanded(self, rows: int) -> Column:
        """With as many rows, where one stands for all."""
        if self.rows == rows:
            return self
        return Column(self.data.expand(self.data.shape[0], rows, *self.shape))


def column(data: Tensor) -> Column:
    """A column in canonical form: n×1 is a column vector, 1×1 a scalar."""
    return Column(columns.canonical(data))


def product(left: Column, right: Column) -> Column:
    """The matrix product in each row; a scalar scales."""
    return Column(columns.product(left.data, right.data))


Found = TypeVar("Found", Column, dict[str, Column])


@dataclass
class State:
    """What a step reads: relations computed so far, and weights."""

    relations: dict[str, Column]
    weights: Mapping[str, Tensor]
    training: bool
    dtype: torch.dtype
    device: torch.device
    lowering: Lowering  # that writes the graph
    numbers: Mapping[str, Column] = field(default_factory=dict)  # integers, not rounded to dtype
    masks: Mapping[str, Tensor] = field(default_factory=dict)  # of groundings, that a step gives
    cache: Any = None  # of keys and values, where rows are appended
    positions: Tensor | None = None  # of the rows that are appended

    def worked(self, relation: str, step: Any, compute: Callable[[], Found]) -> Found:
        """What a step computes; its nodes are noted as that step's."""
        with watched() as kernels:
            work = self.lowering.label = PlanStep(relation, step, kernels)
            found = compute()
        columns = list(found.values()) if isinstance(found, dict) else [found]
        work.rows = sum(column.rows for column in columns)
        shapes = [column.shape for column in columns]
        work.shapes = tuple([s for at, s in enumerate(shapes) if s not in shapes[:at]])
        self.lowering.works.append(work)
        return found

    @property
    def without(self) -> Collection[str]:
        """The passes that are left out."""
        return self.lowering.without

    def lifted(self, tensor: Tensor) -> Tensor:
        """A constant that computation starts from: an attribute of the graph."""
        return self.lowering.lifted(tensor)
