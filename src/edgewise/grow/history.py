"""The inputs of the rows so far, and how far an edit of some of them reaches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from edgewise.flow.bodies import key
from edgewise.flow.paths import flows, source
from edgewise.inputs.kinds import numbers
from edgewise.language.program import Program


@dataclass
class InputHistory:
    """What was appended, input by input, along the axis that grows."""

    parts: dict[str, list[Tensor]] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)
    integers: frozenset[str] = frozenset()  # passed as `numbers`

    def append(self, inputs: Mapping[str, Any], axes: Mapping[str, int]) -> None:
        self.axes = {**self.axes, **axes}
        self.integers |= {n for n, item in inputs.items() if isinstance(item, numbers)}
        for name, item in inputs.items():
            self.parts.setdefault(name, []).append(_values(item))

    def all(self) -> dict[str, Tensor]:
        for name, parts in self.parts.items():
            if len(parts) > 1:
                self.parts[name] = [torch.cat(parts, self.axes[name])]
        return {name: parts[0] for name, parts in self.parts.items()}

    def unlike(self, inputs: Mapping[str, Any]) -> tuple[str, Tensor, Tensor] | None:
        """New rows whose values have another shape than those so far, and these."""
        for name, item in inputs.items():
            new, before = _values(item), self.parts[name][0]
            if new.shape[self.axes[name] + 1 :] != before.shape[self.axes[name] + 1 :]:
                return name, new, before
        return None

    def restarted(self, inputs: Mapping[str, Tensor]) -> InputHistory:
        return InputHistory({n: [t] for n, t in inputs.items()}, self.axes, self.integers)

    def cropped(self, length: int) -> InputHistory:
        return self.restarted(self.between(self.all(), 0, length))

    def taken(self, samples: Tensor) -> InputHistory:
        """Some samples; an input without a batch is the same for all."""
        every = self.all().items()
        return self.restarted(
            {n: t.index_select(0, samples.to(t.device)) if self.axes[n] else t for n, t in every}
        )

    def replaced(self, start: int, stop: int, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        """All inputs with other rows in the place of some."""
        found = {}
        for name, every in self.all().items():
            axis = self.axes[name]
            end = every.shape[axis] - stop
            before, after = every.narrow(axis, 0, start), every.narrow(axis, stop, end)
            middle = [_values(inputs[name])] if name in inputs else []
            found[name] = torch.cat([before, *middle, after], axis)
        return found

    def between(self, inputs: Mapping[str, Tensor], first: int, last: int) -> dict[str, Tensor]:
        return {n: t.narrow(self.axes[n], first, last - first) for n, t in inputs.items()}

    def as_inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """The tensors as they were passed."""
        return {n: numbers(t) if n in self.integers else t for n, t in inputs.items()}

    def rows(self, inputs: Mapping[str, Tensor]) -> int:
        name = next(iter(inputs))
        return int(inputs[name].shape[self.axes[name]])


def _values(item: Any) -> Tensor:
    found = item.values if isinstance(item, numbers) else item
    assert isinstance(found, Tensor)
    return found


def furthest(program: Program, inputs: Sequence[str], axes: Mapping[str, int]) -> float:
    """How many rows further than an edited one any relation may change: its axis of `axes`."""
    most = 0.0
    for name in inputs:
        reached = flows(program, name).reached
        for relation, axis in axes.items():
            for one in reached.get(relation, ()):
                most = max(most, one.table.get((key(axis), source(0)), math.inf))
    return most
