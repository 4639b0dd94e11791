"""One step of a grounded model: tensors and weights in, the output relation out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from edgewise.ground.embeddings import with_stacks
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Constants, Index
from edgewise.ground.source import Source
from edgewise.inputs.prepare import BoundPlan
from edgewise.language import nodes
from edgewise.language.functions import definition
from edgewise.language.statements import applied_functions
from edgewise.physical.attention.relational import RelationalStep
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.lowering import Lowering
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.merge import Merge
from edgewise.physical.output import Output, Outputs
from edgewise.physical.plan import PhysicalPlan, lowered, untraced
from edgewise.physical.recursion.levels import Levels
from edgewise.physical.recursion.rounds import Rounds
from edgewise.physical.rule import RuleStep


@dataclass(frozen=True, eq=False)
class RelationStep:
    """Computes one relation: its rules, put together."""

    relation: str
    steps: tuple[RuleStep | AttentionStep | RelationalStep, ...]
    merge: Merge
    facts: bool

    def rules(self) -> Iterator[RuleStep]:
        """The rule steps inside, those of a fused attention's sides included."""
        for step in self.steps:
            if isinstance(step, RuleStep):
                yield step
            else:
                yield from step.rules()

    def __call__(self, state: State) -> dict[str, Column]:
        parts = [state.relations[self.relation]] if self.facts else []
        for step in self.steps:
            parts.append(state.worked(self.relation, step, partial(step, state)))
        merge = partial(self.merge, parts, state.training)
        plain = len(parts) == 1 and self.merge.line is None
        return {self.relation: merge() if plain else state.worked(self.relation, None, merge)}


@dataclass(frozen=True, eq=False)
class Executable:
    """The steps of a grounded plan, in order."""

    sources: dict[str, Source]
    steps: tuple[RelationStep | Levels | Rounds, ...]
    relations: dict[str, Index]
    constants: Constants
    refusals: dict[str, str] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)  # of relations computed by class
    unlifted: dict[str, str] = field(default_factory=dict)  # why rows are not computed by class
    constant: frozenset[str] = frozenset()  # data whose values decide classes
    taken: dict[str, Tensor] = field(default_factory=dict)  # the rows of data that are read
    there: dict[str, int] = field(default_factory=dict)  # rows of what is read or computed in part
    in_full: dict[str, str] = field(default_factory=dict)  # why all rows of others are computed
    # rows of data that rules were joined on, and those there are, where not all were
    joined: dict[str, tuple[int, int]] = field(default_factory=dict)

    def run(self, state: State) -> dict[str, Column]:
        for step in self.steps:
            if isinstance(step, RelationStep):
                state.relations.update(step(state))
            else:
                name = ", ".join(step.component.relations)
                state.relations.update(state.worked(name, step, partial(step, state)))
        return state.relations


COPIES = 4  # of an index: as it is, by segment, and both ways in kernels over edges
# names and precisions of inputs, in training or not, as rows or not
Mode = tuple[tuple[str, ...], tuple[torch.dtype, ...], bool, bool]


@dataclass(frozen=True, eq=False)
class Step:
    """Everything that depends on keys and shapes, decided."""

    prepared: BoundPlan
    executable: Executable
    outputs: Outputs
    plans: dict[Mode, PhysicalPlan] = field(default_factory=dict)
    modules: dict[Any, GraphModule] = field(default_factory=dict)  # for tracers
    layered: dict[Any, Any] = field(default_factory=dict)  # plans in parts, or why there are none
    without: tuple[str, ...] = ()  # passes that are left out
    analysed: dict[Any, Any] = field(default_factory=dict)  # about constants, by passes
    batches: float = 1  # that its rows are of, where batches of samples are taken
    padded: bool = False  # one sample of a batch, filled up to the longest
    masked: Any = None  # the rules whose groundings keys of a step rule out
    handle: str = ""  # set when data holds it

    def __call__(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        training: bool,
        lowering: Lowering,
    ) -> list[Column]:
        """The values of the relation of each output."""
        state = self.state(tensors, weights, dtype, device, training, lowering)
        computed = self.executable.run(state)
        sources = self.prepared.sources.values()
        batch = next((s.batch for s in sources if s.batched), 1)  # it may be 0
        found = []
        for output in self.outputs.parts:
            value = computed.get(output.relation)
            if value is None or not value.rows:
                empty = output.empty(batch, dtype, device)
                value = reached(empty, (*tensors.values(), *weights.values()))
            elif value.data.shape[0] == 1 and batch != 1:  # the same in every sample: repeated
                value = Column(value.data.repeat(batch, *[1] * (value.data.ndim - 1)))
            found.append(value)
        return found

    @property
    def output(self) -> Output:
        """The output, where there is one alone."""
        (output,) = self.outputs.parts
        return output

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
        taken = self.executable.taken
        found = {
            name: Column(lowering.lifted(source.data(tensors.get(name), weights, dtype))).take(
                taken.get(name)
            )
            for name, source in self.executable.sources.items()
        }
        integers = {name: c for name, c in found.items() if not c.data.is_floating_point()}
        columns = found | {name: Column(c.data.to(dtype)) for name, c in integers.items()}
        weights = with_stacks(weights, self.prepared.stacks)
        masks = {name: tensor for name, tensor in tensors.items() if name.startswith("@mask")}
        options: dict[str, Any] = {"numbers": integers, "masks": masks}
        return State(columns, weights, training, dtype, device, lowering, **options)

    def plan(
        self,
        names: tuple[str, ...],
        tensors: Sequence[Tensor],
        weights: Sequence[str],
        unit: Tensor,
        training: bool,
        as_rows: bool,
    ) -> PhysicalPlan:
        """The graph for inputs (`names`) and weights like these, which is made once."""
        kinds = tuple([tensor.dtype for tensor in tensors[: len(names)]])
        key = (names, kinds, training and self.is_random, as_rows)
        found = self.plans.get(key)
        if found is None or not found.fits(tensors):

            def run(lowering: Lowering, symbols: Sequence[Tensor]) -> Any:
                inputs = dict(zip(names, symbols, strict=False))
                held = dict(zip(weights, symbols[len(names) :], strict=True))
                values = self(inputs, held, unit.dtype, unit.device, training, lowering)
                return self.outputs.tensors(values, as_rows)

            with untraced():
                every = (*names, *weights)
                found = lowered(
                    run,
                    every,
                    tensors,
                    unit.device,
                    without=self.without,
                    analysed=self.analysed,
                    reads_keys=not self.padded,
                    batches=self.batches,
                )
            self.plans[key] = found
        return found

    @cached_property
    def bytes(self) -> int:
        """About what is held for it: the rows that literals read, and what plans make of them."""
        grounds: list[GroundRule] = []
        for part in self.executable.steps:
            rules = part.rules() if isinstance(part, RelationStep) else ()
            grounds += [step.ground for step in rules]
            grounds += () if isinstance(part, RelationStep) else part.component.grounds
        keys = sum(i.rows * i.arity for i in self.executable.relations.values())
        return 8 * (keys + COPIES * sum(g.count * (1 + len(g.rows)) for g in grounds))

    @cached_property
    def is_random(self) -> bool:
        """Whether training computes something else: random numbers, statistics of a batch."""
        plan = self.prepared.plan
        listed = [f for rule in plan.rules for f in rule.functions]
        listed += [f for line in plan.lines for f in line.functions]
        listed += [f for rule in plan.rules for f in applied_functions(rule.body)]
        fused = [step.dropout for step in plan.steps if not isinstance(step, nodes.Rule)]
        return any(fused) or any(definition(f).trains for f in listed)


def reached(empty: Column, tensors: Iterable[Tensor]) -> Column:
    """The same values, none, with gradients to what it reads: zeros."""
    data = empty.data
    for one in tensors:
        if one.is_floating_point():
            data = data + one.flatten()[:0].view(data.shape).to(data)
    return Column(data)
