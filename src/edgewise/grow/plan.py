"""The plans of appended rows: one for what is the same for all rows, one for the new rows.

The latter is lowered as if the new rows were the first. What depends on the position, numbers and
members of families of weights, is tabulated for all `capacity` positions and read at theirs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Grid, Index
from edgewise.grow.axes import (
    AppendedAxes,
    CannotGrow,
    appended_axes,
    computed_positions,
    refusal,
)
from edgewise.grow.cache import KeyValueCache, PositionTables
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.physical.lowering import Lowering
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.plan import PhysicalPlan, lowered, lowered_parts, untraced
from edgewise.physical.step import RelationStep, Step

MERGED_FROM = 64  # rows: below, reading weights dominates, and concatenating them does not pay
Tensors = Mapping[str, Tensor]
_PLANS: WeakKeyDictionary[Step, dict[Any, IncrementalPlan]] = WeakKeyDictionary()


class IncrementalPlan:
    """What is decided once for the appended rows of a step: axes, position tables and plans."""

    def __init__(
        self, step: Step, axes: AppendedAxes, tables: PositionTables, unit: Tensor, training: bool
    ) -> None:
        self.step = step
        self.axes = axes
        self.tables = tables
        self.static = [name for name in step.executable.relations if name in axes.static]
        self._unit = unit
        self._training = training
        self._plans: dict[str, PhysicalPlan] = {}

    def static_plan(self, values: Tensors, weights: Tensors) -> PhysicalPlan:
        """Values and weights → the relations that are the same for all rows."""
        tensors, device = [*values.values(), *weights.values()], self._unit.device

        def run(lowering: Lowering, symbols: Sequence[Tensor]) -> dict[str, Tensor]:
            state = self._state(values, weights, symbols, lowering)
            self._lower(self.static, state)
            return {name: state.relations[name].data for name in self.static}

        if not self._fits("static", tensors):
            with untraced():
                names = (*values, *weights)
                self._plans["static"] = lowered_parts(
                    run, names, tensors, device, self.step.without
                )[0]
        return self._plans["static"]

    def appended_plan(
        self,
        values: Tensors,
        weights: Tensors,
        positions: Tensor,
        static: Tensors,
        cache: KeyValueCache,
    ) -> PhysicalPlan:
        """Values, weights, positions, static relations and a cache → the output at new rows."""
        parts = (values, weights, {"positions": positions}, static)
        names, device = [name for part in parts for name in part], self._unit.device
        tensors, output = [t for part in parts for t in part.values()], self.step.output

        def run(lowering: Lowering, symbols: Sequence[Tensor]) -> Tensor:
            lowering.argument("cache", cache)
            state = self._state(values, weights, symbols, lowering)
            state.cache = cache
            state.positions, *rest = symbols[len(values) + len(weights) :]
            state.relations.update(zip(static, map(Column, rest), strict=True))
            self._lower(self.axes.axis, state)
            return output.tensor(state.relations[output.relation], False)

        if not self._fits("appended", tensors):
            without, appending = self.step.without, cache.rows < MERGED_FROM
            with untraced():
                self._plans["appended"] = lowered(
                    run, names, tensors, device, without=without, appending=appending
                )
        return self._plans["appended"]

    def _fits(self, name: str, tensors: Sequence[Tensor]) -> bool:
        found = self._plans.get(name)
        return found is not None and found.fits(tensors)

    def _state(
        self, values: Tensors, weights: Tensors, symbols: Sequence[Tensor], lowering: Lowering
    ) -> State:
        left, unit = iter(symbols), self._unit
        inputs, held = ({name: next(left) for name in names} for names in (values, weights))
        return self.step.state(inputs, held, unit.dtype, unit.device, self._training, lowering)

    def _lower(self, relations: Collection[str], state: State) -> None:
        for part in relation_steps(self.step):
            if part.relation in relations:
                state.relations.update(part(state))


def relation_steps(step: Step) -> Iterator[RelationStep]:
    for part in step.executable.steps:
        assert isinstance(part, RelationStep)  # others cannot grow
        yield part


def incremental_plan(
    step: Step,
    inputs: Collection[str],
    capacity: int,
    limit: int,
    unit: Tensor,
    training: bool,
    masked: Container[str],
) -> IncrementalPlan:
    """The plan for rows of these inputs and at most `capacity` positions, decided once."""
    plans = _PLANS.setdefault(step, {})
    key = (frozenset(inputs), capacity, training and step.is_random)
    if key not in plans:
        axes = appended_axes(step.executable, inputs, capacity, masked)
        if step.output.relation not in axes.axis:
            raise CannotGrow(
                f"`{step.output.relation}` does not grow",
                caller(),
                "give the inputs that it depends on with every call",
            )
        tables = position_tables(step, axes, capacity, limit)
        moved = {g: {at: t.to(unit.device) for at, t in own.items()} for g, own in tables.items()}
        plans[key] = IncrementalPlan(step, axes, moved, unit, training)
    return plans[key]


# what depends on the position


def position_tables(step: Step, axes: AppendedAxes, capacity: int, limit: int) -> PositionTables:
    """For every rule that reads positions, what its literals read at each of them."""
    executable = step.executable
    relations = {n: _extended(n, i, axes, capacity) for n, i in executable.relations.items()}
    domains = dict(step.prepared.plan.domains)
    grounder = Grounder(executable.constants, domains, relations, limit)
    found: PositionTables = {}
    for part in relation_steps(step):
        for rule in part.rules():
            names = axes.names(rule.rule.body, rule.rule.place)
            read = names | computed_positions(rule.rule.body, names)
            literals = list(_positional(rule.ground, read))
            if literals:
                (name,) = names
                found[rule.ground] = _tables(rule.ground, literals, name, grounder, capacity)
    return found


def _extended(name: str, index: Index, axes: AppendedAxes, capacity: int) -> Index:
    axis = axes.axis.get(name)
    if axis is None:
        return index
    if not isinstance(index, Grid):
        raise refusal(f"`{name}` is not on dense axes", None)
    return Grid((*index.sizes[:axis], capacity, *index.sizes[axis + 1 :]))


def _positional(ground: GroundRule, names: set[str]) -> Iterator[int]:
    """The literals whose numbers or weights depend on the position."""
    for at, literal in enumerate(ground.body.literals):
        match literal:
            case nodes.SpecialAtom(terms=terms) if literal.carries_value:
                read = terms
            case nodes.Weight(keys=keys):
                read = keys
            case _:
                continue
        if any(v.name in names for v in variables(read)):
            yield at


def _tables(
    ground: GroundRule, literals: list[int], name: str, grounder: Grounder, capacity: int
) -> dict[int, Tensor]:
    every = grounder.ground(ground.body)
    head = ground.rule.head
    names = [v.name for v in variables(head.terms)]
    assert isinstance(ground.heads, Grid)
    rows = ground.heads.sizes[names.index(name)]
    if every.count * rows != ground.count * capacity:
        raise refusal(f"`{head.relation}` does not hold at every position", ground.rule.place)
    before = math.prod(ground.heads.sizes[: names.index(name)])
    found = {}
    for at in literals:
        column = every.numbers.get(at, every.rows.get(at))
        if column is None:  # the grounding's own number
            column = torch.arange(every.count)
        found[at] = column.reshape(before, capacity, -1)
    return found
