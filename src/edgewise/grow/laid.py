"""What is decided once for a step that appends rows: its axes, its tables, and its tape."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.ground.rules import GroundRule
from edgewise.grow.axes import Axes, axes_of
from edgewise.grow.cache import Cache
from edgewise.grow.errors import CannotGrow
from edgewise.grow.places import Tables, tables_of
from edgewise.run.attention import AttentionStep
from edgewise.run.step import Step
from edgewise.run.tape import Tape

_KNOWN: WeakKeyDictionary[Step, dict[Any, Laid]] = WeakKeyDictionary()


class Current(threading.local):
    """The cache that a step writes to now: steps and tapes are shared, caches are not."""

    cache: Cache

    def __contains__(self, relation: str) -> bool:
        return relation in self.cache.relations

    def attend(self, step: AttentionStep, *tensors: Tensor | None) -> Tensor:
        return self.cache.attend(step, *tensors)  # type: ignore[arg-type]

    def at_places(self, ground: GroundRule, at: int, places: Tensor) -> Tensor | None:
        return self.cache.at_places(ground, at, places)


@dataclass(eq=False)
class Laid:
    axes: Axes
    tables: Tables
    current: Current = field(default_factory=Current)
    tape: Tape | None = None
    runs: int = 0  # one rule after another; what comes again is worth writing down


def laid_out(
    step: Step, inputs: Mapping[str, Any], capacity: int, limit: int, device: torch.device
) -> Laid:
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
        known[key] = Laid(axes, moved)
    return known[key]
