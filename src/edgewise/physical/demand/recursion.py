"""Demand for recursion: the rows of a component from which wanted rows are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Index, Keys
from edgewise.ground.joins.body import SAMPLE
from edgewise.ground.topological import stages
from edgewise.physical.demand.need import GroundIndex, Need, keys_at, places_among, reads
from edgewise.physical.recursion.levels import Component, Levels, by_levels
from edgewise.physical.recursion.rounds import Rounds, by_rounds


@dataclass(frozen=True, eq=False)
class ComponentIndex:
    """The rule heads behind each row of the relations of a component."""

    step: Levels | Rounds

    @property
    def component(self) -> Component:
        return self.step.component

    @cached_property
    def grounds(self) -> list[GroundIndex]:
        return [GroundIndex(ground) for ground in self.component.grounds]

    @cached_property
    def head_of(self) -> list[Tensor]:
        """For each rule the head that derives a row; -1 for none."""
        found = []
        for ground, rows in zip(self.component.grounds, self.component.heads, strict=True):
            size = self.component.relations[ground.rule.head.relation].rows
            found.append(torch.full((size,), -1).index_copy_(0, rows, torch.arange(len(rows))))
        return found

    @property
    def is_restricted(self) -> bool:
        """Whether less than all is computed; the rounds of ragged samples are counted together."""
        ragged = any(g.rule.head.terms[:1] == (SAMPLE,) for g in self.component.grounds)
        return isinstance(self.step, Levels) or not ragged

    def row_of(self, relation: str, rows: Tensor) -> Tensor:
        """Rows of a relation as rows of the component: after rounds, some may not hold."""
        if isinstance(self.step, Levels):
            return rows
        return self.step.present[-1][relation][rows]

    def taken(self, wanted: Mapping[str, Tensor]) -> TakenComponent:
        """What wanted rows need, inside of the component."""
        sizes = {name: index.rows for name, index in self.component.relations.items()}
        held = {name: torch.zeros(size, dtype=torch.bool) for name, size in sizes.items()}
        done = [torch.zeros(g.ground.heads.rows, dtype=torch.bool) for g in self.grounds]
        waiting = {name: self.row_of(name, rows) for name, rows in wanted.items()}
        while waiting:
            for name, rows in waiting.items():
                held[name][rows] = True
            found: dict[str, list[Tensor]] = {}
            for number, index in enumerate(self.grounds):
                if (own := waiting.get(index.ground.rule.head.relation)) is not None:
                    self._follow(number, own, done[number], found)
            fresh = {name: torch.cat(parts).unique() for name, parts in found.items()}
            waiting = {
                name: new for name, rows in fresh.items() if len(new := rows[~held[name][rows]])
            }
        chosen = [
            index.taken(mask.nonzero()[:, 0])
            for index, mask in zip(self.grounds, done, strict=True)
        ]
        facts = {n: held[n][rows].nonzero()[:, 0] for n, rows in self.component.facts.items()}
        every = {name: mask.nonzero()[:, 0] for name, mask in held.items()}
        return TakenComponent(self, every, chosen, facts)

    def _follow(
        self, number: int, rows: Tensor, done: Tensor, found: dict[str, list[Tensor]]
    ) -> None:
        """Note the rows of the component that the heads of one rule behind some rows read."""
        index, heads = self.grounds[number], self.head_of[number][rows]
        heads = index.with_groups(heads[heads >= 0])
        less = index.taken(heads[~done[heads]])
        done[heads] = True
        for at, relation in reads(less).items():
            if relation in self.component.relations:
                read = less.rows[at]
                read = torch.arange(less.count) if read is None else read
                found.setdefault(relation, []).append(read)


@dataclass(frozen=True, eq=False)
class TakenComponent:
    """Some rows of the relations of a component, and their ground rules."""

    index: ComponentIndex
    rows: dict[str, Tensor]
    grounds: list[GroundRule]
    facts: dict[str, Tensor]  # rows of the facts' columns

    def built(self, need: Need, limit: int) -> tuple[Levels | Rounds, dict[str, Tensor]]:
        """The component of those rows, and the rows of its relations that it gives."""
        component, step = self.index.component, self.index.step
        inner = {name: index.rows for name, index in component.relations.items()}
        both = Need({**need.sizes, **inner}, chosen=need.chosen | self.rows)
        relations: dict[str, Index] = {
            n: Keys(keys_at(i, self.rows[n])) for n, i in component.relations.items()
        }
        facts = {
            n: places_among(self.rows[n], component.facts[n][rows], inner[n])
            for n, rows in self.facts.items()
        }
        for relation in {r for g in self.grounds for r in reads(g).values()} - set(inner):
            both.chosen[relation] = need.of(relation)
        grounds = tuple(both.moved(ground) for ground in self.grounds)
        less = replace(component, relations=relations, grounds=grounds, facts=facts)
        if isinstance(step, Levels):
            return by_levels(less, *stages(grounds, relations)), self.rows
        made = by_rounds(less, step.count, limit)
        present = made.present[-1]
        return made, {
            name: places_among(step.present[-1][name], own[present[name]], inner[name])
            for name, own in self.rows.items()
        }
