"""Parts of a plan on data: what some rows of its outputs need, grounded alone or taken from all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import OutOfDomain
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Index, Keys
from edgewise.ground.magic_sets import MagicSets, Needed, Places, Unrestricted
from edgewise.ground.source import Source
from edgewise.inputs.prepare import BoundPlan
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import atoms
from edgewise.physical.build import build
from edgewise.physical.demand.need import Chooser, in_order, keys_at, places_among
from edgewise.physical.demand.smaller_plan import DemandIndex
from edgewise.physical.demand.wanted import Want
from edgewise.physical.output import Output, Outputs, free_positions, outputs_of, wanted_keys
from edgewise.physical.step import Executable, Step
from edgewise.plan.nodes import Plan

INLINING = ("inline pairs", "inline places")
LEAST = 1 << 12  # explicit rows of data; fewer are grounded at once, as fast as their parts
ONE_AT_A_TIME = threading.RLock()  # what several threads need is grounded by one of them


@dataclass(frozen=True, eq=False)
class GroundedPlan:
    """A plan on data, on the CPU, and the weights whose shapes it was made for."""

    prepared: BoundPlan
    executable: Executable
    weights: Mapping[str, Tensor]
    demand: DemandIndex


@dataclass(frozen=True, eq=False)
class PlanGrounder:
    """A plan bound to data, and how its rules are grounded: all, or what some atoms need."""

    prepared: BoundPlan
    weights: Mapping[str, Tensor]
    limit: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def all(self) -> GroundedPlan:
        return self._built(self.prepared.plan, self.prepared.sources)

    def of(self, needed: Needed) -> GroundedPlan:
        """The plan on the rows of data that are needed, without rules that derive nothing needed.

        Attention whose relations are read in part is computed rule by rule.
        """
        plan, sources, origins = self.prepared.plan, {}, {}
        for name, rows in needed.rows.items():
            sources[name] = source = self.prepared.sources[name]
            if rows is not None and len(rows) < source.index.rows:
                index = Keys(keys_at(source.index, rows))
                sources[name] = replace(source, index=index)
                origins[name] = source, rows
        steps: list[Any] = []
        for step in plan.steps:
            if isinstance(step, nodes.Rule) or step.head.relation in needed.in_full:
                steps.append(step)
            else:
                steps += step.replaces
        left = [s for s in steps if s.head.relation in needed.derived]
        return self._built(replace(plan, steps=tuple(left)), sources, origins, needed)

    def _built(
        self,
        plan: Plan,
        sources: dict[str, Source],
        origins: Mapping[str, tuple[Source, Tensor]] | None = None,
        needed: Needed | None = None,
    ) -> GroundedPlan:
        executable = build(
            plan,
            sources,
            self.prepared.constants,
            limit=self.limit,
            weights=self.weights,
            shapes={name: source.shape for name, source in self.prepared.sources.items()},
            needed=needed,
            **self.options,
        )
        origins = origins or {}
        counts = {name: (len(rows), of.index.rows) for name, (of, rows) in origins.items()}
        executable = replace(executable, joined=counts)
        demand = DemandIndex(executable, self.limit, origins)
        return GroundedPlan(replace(self.prepared, plan=plan), executable, self.weights, demand)


Without = Callable[
    [tuple[str, ...]], PlanGrounder | None
]  # passes; None where the plan is the same


def ground_all(found: PlanGrounder, without: Without) -> GroundedPlan:
    """All of a plan, every rule of its own where inlined ones have keys outside of a domain.

    Inlined into another rule, a rule has the variables of that one: what ranged over a domain
    may be bound by an atom, whose other keys are then refused instead of left out.
    """
    try:
        return found.all()
    except OutOfDomain:
        other = without(INLINING)
        if other is None:
            raise
        return other.all()


@dataclass(eq=False)
class Parts:
    """A plan of which parts are taken: each is grounded alone, until together they have read as
    many rows as there are; then all of it is grounded once."""

    grounder: PlanGrounder
    other: Without
    fill: float | None
    dense: bool | None
    without: tuple[str, ...]
    read: int = 0

    @cached_property
    def complete(self) -> GroundedPlan:
        return ground_all(self.grounder, self.other)

    @cached_property
    def magic(self) -> tuple[PlanGrounder, MagicSets] | None:
        """How rows are found that wanted ones need, and the plan on those; None where all are."""
        found = self._magic(self.grounder)
        if found is None or found.in_full:  # a comparison reads two keys, a pattern all
            other = self.other(("find patterns",)) if self._has_patterns else None
            more = None if other is None else self._magic(other)
            if other is not None and more is not None:
                return other, more
        return None if found is None else (self.grounder, found)

    @property
    def _has_patterns(self) -> bool:
        rules = self.grounder.prepared.plan.rules
        return any(isinstance(atom, nodes.PatternAtom) for rule in rules for atom in atoms(rule))

    def _magic(self, grounder: PlanGrounder) -> MagicSets | None:
        plan, sources = grounder.prepared.plan, grounder.prepared.sources
        listed = [s.index.rows for s in sources.values() if isinstance(s.index, Keys)]
        values = needs(plan.rules, values_only=True)
        recursive = any(part & values[n] for part in components(values) for n in part)
        if sum(listed) < LEAST or (recursive and plan.rounds is not None):
            return None  # which atoms take part in rounds is known when all are
        indices = {name: source.index for name, source in sources.items()}
        domains, constants = dict(plan.domains), grounder.prepared.constants
        known = Grounder(constants, domains, indices, grounder.limit)
        found = MagicSets(plan.rules, known, grounder.prepared.in_batch)
        return found if found.restricts else None

    def step(self, want: Want | None, choose: Chooser | None) -> Step:
        """The step for wanted rows, perhaps with chosen groundings alone."""
        found = self._needed(want) if choose is None else None
        if found is None:
            with ONE_AT_A_TIME:
                found = self.complete
        relations = found.executable.relations
        options = found.weights, self.fill, self.dense, want
        outputs = outputs_of(found.prepared, relations, *options)
        wanted: dict[str, list[Tensor]] = {}
        for output in outputs.parts:
            size = relations[output.relation].rows
            rows = torch.arange(size) if output.rows is None else output.rows
            wanted.setdefault(output.relation, []).append(rows)
        if choose is not None:
            choose.check(found.demand.hops(wanted))
        needed = {name: torch.cat(rows) for name, rows in wanted.items()}
        executable, chosen = found.demand.part(needed, choose)
        parts = [
            part if part.rows is None else replace(part, rows=_local(part, chosen, relations))
            for part in outputs.parts
        ]
        made = Outputs(tuple(parts), outputs.names)
        return Step(found.prepared, executable, made, without=self.without)

    def _needed(self, want: Want | None) -> GroundedPlan | None:
        """The plan of what wanted rows need alone; None where all of it is, or takes less time."""
        if "complete" in vars(self) or self.magic is None:
            return None
        grounder, sets = self.magic
        demands = list(self._demands(want, grounder.prepared))
        if self.read > sets.total or not all(len(k) and places for _, places, k in demands):
            return None
        try:
            needed = sets.needed(demands)
            self.read += needed.count
            return grounder.of(needed)
        except (Unrestricted, OutOfDomain):
            self.read = sets.total + 1
            return None

    def _demands(
        self, want: Want | None, prepared: BoundPlan
    ) -> Iterator[tuple[str, Places, Tensor]]:
        """Keys of each output, or its constants; without places where all rows are wanted."""
        for number, query in enumerate(prepared.plan.outputs):
            keys = None
            if want is not None:
                arity = len(free_positions(query))
                keys = want.coded(number, arity, query.relation, prepared.constants, self.fill)
            if keys is not None:
                every = tuple(range(len(query.terms)))
                yield query.relation, every, wanted_keys(query, keys, prepared.constants)
                continue
            constant = [p for p, t in enumerate(query.terms) if not isinstance(t, nodes.Variable)]
            codes = [prepared.constants.code(query.terms[p]) for p in constant]  # type: ignore[arg-type]
            # the axes of an output that has none of its own are as long as all of its keys
            places = () if self.dense and len(constant) < len(query.terms) else tuple(constant)
            yield query.relation, places, torch.tensor([codes], dtype=torch.int64)


def _local(
    output: Output, chosen: Mapping[str, Tensor], relations: Mapping[str, Index]
) -> Tensor | None:
    """The rows of an output among those that are computed; None for all of them in order."""
    name = output.relation
    if output.rows is None or not len(output.rows):
        return output.rows
    rows = places_among(chosen[name], output.rows, relations[name].rows)
    return None if in_order(rows, len(chosen[name])) else rows
