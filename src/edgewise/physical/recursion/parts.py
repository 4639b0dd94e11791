"""The pieces of a recursion: tasks that compute heads, parts that make atoms of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from edgewise.ground.index import Index
from edgewise.ground.rules import GroundRule
from edgewise.ground.topological import head_rows
from edgewise.language import nodes
from edgewise.physical.column import Column
from edgewise.physical.merge import Merge
from edgewise.physical.rule import RuleStep
from edgewise.physical.state import State


@dataclass(frozen=True, eq=False)
class Task:
    """Some heads of one rule; `reads` are the stages of recursive relations it reads, joined."""

    step: RuleStep
    reads: dict[str, tuple[int, ...]]
    heads: Tensor


@dataclass(frozen=True, eq=False)
class Part:
    """Some atoms of one relation: their facts, then rows of what tasks computed."""

    relation: str
    merge: Merge
    members: tuple[tuple[int, Tensor | None], ...]
    facts: Tensor | None

    def __call__(
        self, values: Mapping[int, Column], facts: Column | None, training: bool
    ) -> Column:
        given = [] if self.facts is None or facts is None else [facts.take(self.facts)]
        return self.merge([*given, *(values[t].take(rows) for t, rows in self.members)], training)


@dataclass(frozen=True, eq=False)
class Stage:
    """What is computed at once: tasks (by number), then atoms from their values."""

    number: int
    tasks: tuple[tuple[int, Task], ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Component:
    """Relations that need one another, with their ground rules and facts."""

    relations: dict[str, Index]
    grounds: tuple[GroundRule, ...]
    facts: dict[str, Tensor]  # relation → rows that are facts
    lines: Mapping[str, nodes.Line]
    default: nodes.Function

    @property
    def part(self) -> set[str]:
        return set(self.relations)

    @cached_property
    def heads(self) -> list[Tensor]:
        return [head_rows(g, self.relations[g.rule.head.relation]) for g in self.grounds]

    def start(self, state: State) -> dict[str, Column]:
        """The values of facts, relation by relation."""
        return {r: state.relations[r] for r in self.relations if r in state.relations}
