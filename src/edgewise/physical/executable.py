"""The steps of a grounded plan, and what they compute one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from edgewise.ground.index import Constants, Index
from edgewise.ground.source import Source
from edgewise.physical.attention import AttentionStep
from edgewise.physical.column import Column
from edgewise.physical.merge import Merge
from edgewise.physical.recursion import Levels, Rounds
from edgewise.physical.rule import RuleStep
from edgewise.physical.state import State


@dataclass(frozen=True, eq=False)
class RelationStep:
    """Computes one relation: its rules, put together."""

    relation: str
    steps: tuple[RuleStep | AttentionStep, ...]
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

    def run(self, state: State) -> dict[str, Column]:
        for step in self.steps:
            if isinstance(step, RelationStep):
                state.relations.update(step(state))
            else:
                name = ", ".join(step.component.relations)
                state.relations.update(state.worked(name, step, partial(step, state)))
        return state.relations
