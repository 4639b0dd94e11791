"""What is decided once for a step that appends rows: its axes, its tables, and its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from edgewise.errors import caller
from edgewise.grow.axes import Axes, axes_of
from edgewise.grow.errors import CannotGrow
from edgewise.grow.places import Tables, tables_of
from edgewise.physical.plan import PhysicalPlan
from edgewise.physical.step import Step

_KNOWN: WeakKeyDictionary[Step, dict[Any, GrowingPlan]] = WeakKeyDictionary()


@dataclass(eq=False)
class GrowingPlan:
    axes: Axes
    tables: Tables
    fixed: PhysicalPlan | None = None  # what is the same for all rows
    plan: PhysicalPlan | None = None

    def fixed_names(self, step: Step) -> list[str]:
        """The relations that are the same for all rows, in the order they are computed."""
        return [name for name in step.executable.relations if name in self.axes.fixed]


def growing_plan(
    step: Step, inputs: Mapping[str, Any], capacity: int, limit: int, device: torch.device
) -> GrowingPlan:
    """For rows of these inputs, with room for `capacity`; worked out once."""
    known = _KNOWN.setdefault(step, {})
    key = (frozenset(inputs), capacity)
    if key not in known:
        axes = axes_of(step.executable, inputs, capacity)
        if step.output.relation not in axes.place:
            raise CannotGrow(
                f"`{step.output.relation}` does not grow",
                caller(),
                "give the inputs it hangs on with every call",
            )
        tables = tables_of(step, axes, capacity, limit)
        moved = {g: {at: t.to(device) for at, t in read.items()} for g, read in tables.items()}
        known[key] = GrowingPlan(axes, moved)
    return known[key]
