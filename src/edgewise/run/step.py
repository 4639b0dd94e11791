"""One step of a grounded model: tensors and weights in, the output relation out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.run.build import Executable
from edgewise.run.column import Column
from edgewise.run.inputs import Prepared
from edgewise.run.output import Output
from edgewise.run.state import State

Mode = tuple[bool, tuple[torch.dtype, ...]]  # in training or not, and the kinds of inputs


@dataclass(frozen=True, eq=False)
class Step:
    """Everything that depends on keys and shapes, decided."""

    prepared: Prepared
    executable: Executable
    output: Output
    graphs: dict[Mode, torch.fx.GraphModule | None] = field(default_factory=dict)

    def __call__(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        training: bool,
    ) -> Column:
        state = self.state(tensors, weights, dtype, device, training)
        value = self.executable.run(state).get(self.output.relation)
        if value is None or not value.rows:
            batch = max((source.batch for source in self.executable.sources.values()), default=1)
            return self.output.empty(batch, dtype, device)
        return value

    def state(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        training: bool,
    ) -> State:
        """What is known before the first rule."""
        found = {
            name: Column(source.data(tensors.get(name), weights, dtype))
            for name, source in self.executable.sources.items()
        }
        whole = {name: c for name, c in found.items() if not c.data.is_floating_point()}
        columns = found | {name: Column(c.data.to(dtype)) for name, c in whole.items()}
        return State(columns, weights, training, dtype, device, numbers=whole)
