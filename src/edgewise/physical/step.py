"""One step of a grounded model: tensors and weights in, the output relation out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from edgewise.functions import Law
from edgewise.ground.embeddings import with_stacks
from edgewise.inputs.prepare import BoundPlan
from edgewise.language.functions import definition
from edgewise.language.statements import applied_functions
from edgewise.physical.column import Column
from edgewise.physical.executable import Executable
from edgewise.physical.output import Output
from edgewise.physical.plan import PhysicalPlan, lowered, untraced
from edgewise.physical.state import State
from edgewise.physical.symbols import Lowering
from edgewise.plan.nodes import Attention

# names and precisions of inputs, in training or not, as rows or not
Mode = tuple[tuple[str, ...], tuple[torch.dtype, ...], bool, bool]


@dataclass(frozen=True, eq=False)
class Step:
    """Everything that depends on keys and shapes, decided."""

    prepared: BoundPlan
    executable: Executable
    output: Output
    plans: dict[Mode, PhysicalPlan] = field(default_factory=dict)
    modules: dict[Any, GraphModule] = field(default_factory=dict)  # for tracers
    without: tuple[str, ...] = ()  # passes that are left out
    analysed: dict[Any, Any] = field(default_factory=dict)  # about constants, by passes
    padded: bool = False  # one sample of a batch, filled up to the longest
    handle: str = ""  # given when it is kept with data

    def __call__(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        training: bool,
        lowering: Lowering,
    ) -> Column:
        state = self.state(tensors, weights, dtype, device, training, lowering)
        value = self.executable.run(state).get(self.output.relation)
        batch = max((source.batch for source in self.prepared.sources.values()), default=1)
        if value is None or not value.rows:
            empty = self.output.empty(batch, dtype, device)
            return _reached(empty, (*tensors.values(), *weights.values()))
        if value.data.shape[0] == 1 and batch > 1:  # the same in every sample, given for each
            return Column(value.data.repeat(batch, *[1] * (value.data.ndim - 1)))
        return value

    def state(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        training: bool,
        lowering: Lowering,
    ) -> State:
        """What is known before the first rule."""
        found = {
            name: Column(lowering.lifted(source.data(tensors.get(name), weights, dtype)))
            for name, source in self.executable.sources.items()
        }
        whole = {name: c for name, c in found.items() if not c.data.is_floating_point()}
        columns = found | {name: Column(c.data.to(dtype)) for name, c in whole.items()}
        weights = with_stacks(weights, self.prepared.stacks)
        return State(columns, weights, training, dtype, device, lowering, numbers=whole)

    def plan(
        self,
        names: tuple[str, ...],
        given: Sequence[Tensor],
        weights: Sequence[str],
        unit: Tensor,
        training: bool,
        as_rows: bool,
    ) -> PhysicalPlan:
        """The graph for inputs (`names`) and weights like these, which is made once."""
        kinds = tuple([tensor.dtype for tensor in given[: len(names)]])
        key = (names, kinds, training and self.is_random, as_rows)
        found = self.plans.get(key)
        if found is None or not found.fits(given):

            def run(lowering: Lowering, symbols: Sequence[Tensor]) -> Tensor:
                inputs = dict(zip(names, symbols, strict=False))
                held = dict(zip(weights, symbols[len(names) :], strict=True))
                value = self(inputs, held, unit.dtype, unit.device, training, lowering)
                return self.output.tensor(value, as_rows)

            with untraced():
                every = (*names, *weights)
                found = lowered(
                    run,
                    every,
                    given,
                    unit.device,
                    without=self.without,
                    analysed=self.analysed,
                    reads_keys=not self.padded,
                )
            self.plans[key] = found
        return found

    @cached_property
    def is_random(self) -> bool:
        """Whether training draws random numbers."""
        plan = self.prepared.plan
        listed = [f for rule in plan.rules for f in rule.functions]
        listed += [f for line in plan.lines for f in line.functions]
        listed += [f for rule in plan.rules for f in applied_functions(rule.body)]
        fused = [step.dropout for step in plan.steps if isinstance(step, Attention)]
        return any(fused) or any(Law.RANDOM in definition(f) for f in listed)


def _reached(empty: Column, given: Iterable[Tensor]) -> Column:
    """The same values, none, with gradients to what is given: zeros."""
    data = empty.data
    for one in given:
        if one.is_floating_point():
            data = data + one.flatten()[:0].view(data.shape).to(data)
    return Column(data)
