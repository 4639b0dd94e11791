"""What the pieces of a step read from one another while it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from edgewise.kernels.chosen import watched
from edgewise.physical.column import Column
from edgewise.physical.symbols import Lowering, PlanStep

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
    cache: Any = None  # of keys and values, where rows are appended
    positions: Tensor | None = None  # of the rows that are appended

    def worked(self, relation: str, step: Any, compute: Callable[[], Found]) -> Found:
        """What a step computes; its nodes are noted as that step's."""
        with watched() as kernels:
            work = self.lowering.label = PlanStep(relation, step, kernels)
            found = compute()
        columns = list(found.values()) if isinstance(found, dict) else [found]
        work.rows = sum(column.rows for column in columns)
        work.shapes = tuple(dict.fromkeys(column.shape for column in columns))
        self.lowering.works.append(work)
        return found

    @property
    def without(self) -> Collection[str]:
        """The passes that are left out."""
        return self.lowering.without

    def lifted(self, tensor: Tensor) -> Tensor:
        """A constant that computation starts from: an attribute of the graph."""
        return self.lowering.lifted(tensor)
