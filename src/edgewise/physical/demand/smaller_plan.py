"""The smaller plan that some rows of the outputs need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Keys
from edgewise.ground.source import Source
from edgewise.physical.attention.relational import RelationalStep
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.demand.attention import AttentionIndex, unrestricted, with_sides
from edgewise.physical.demand.need import (
    Chooser,
    GroundIndex,
    MergeIndex,
    Need,
    is_all,
    keys_at,
    reads,
    source_at,
)
from edgewise.physical.demand.recursion import ComponentIndex, TakenComponent
from edgewise.physical.demand.relational import RelationalIndex, moved
from edgewise.physical.recursion.levels import Levels
from edgewise.physical.recursion.rounds import Rounds
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import Executable, RelationStep

AnyStep = RelationStep | Levels | Rounds


@dataclass(frozen=True, eq=False)
class RelationIndex:
    """The rules of a relation, each with an index of its groundings."""

    step: RelationStep
    merge: MergeIndex
    parts: tuple[GroundIndex | AttentionIndex | RelationalIndex, ...]

    def taken(self, need: Need, choose: Chooser | None) -> TakenRelation:
        """The rules that needed rows come from; what those read is needed too."""
        relation = self.step.relation
        rows, hop = need.of(relation), need.hops[relation]
        heads = self.merge.heads(rows)
        first = 1 if self.step.facts else 0
        made: list[GroundRule | AttentionStep | RelationalStep] = []
        for number, part in enumerate(self.parts, first):
            if isinstance(part, AttentionIndex):
                step, heads[number] = part.taken(heads[number], choose, hop)
                part.note_reads(step, need, hop + 1)
                made.append(step)
                continue
            if isinstance(part, RelationalIndex):
                along, heads[number] = part.taken(heads[number], choose, hop)
                part.note_reads(along, need, hop + 1)
                made.append(along)
                continue
            if choose is None:  # what is sampled is normalised among itself
                heads[number] = part.with_groups(heads[number])
            ground = part.taken(heads[number], choose if part.several else None, hop)
            need.add_reads(ground, hop + part.several)
            made.append(ground)
        return TakenRelation(self, rows, heads, made)


@dataclass(frozen=True, eq=False)
class TakenRelation:
    """Some rows of a relation, the rows of each part behind them, and its rules for those."""

    index: RelationIndex
    rows: Tensor
    heads: list[Tensor]
    made: list[GroundRule | AttentionStep | RelationalStep]

    @property
    def facts(self) -> Tensor | None:
        return self.heads[0] if self.index.step.facts else None

    def built(self, need: Need) -> RelationStep:
        step = self.index.step
        merge, used = self.index.merge.taken(self.rows, self.heads)
        first = 1 if step.facts else 0
        steps: list[RuleStep | AttentionStep | RelationalStep] = []
        for number in used:
            if number < first:
                continue
            found, old = self.made[number - first], step.steps[number - first]
            if isinstance(found, AttentionStep):
                steps.append(_moved(found, need))
            elif isinstance(found, RelationalStep):
                steps.append(moved(found, need.moved))
            else:
                assert isinstance(old, RuleStep)
                steps.append(replace(old, ground=need.moved(found)))
        return RelationStep(step.relation, tuple(steps), merge, merge.facts)


def _moved(step: AttentionStep, need: Need) -> AttentionStep:
    """The attention where relations have the needed rows alone."""
    return with_sides(
        step,
        lambda side: replace(side, step=replace(side.step, ground=need.moved(side.step.ground))),
    )


def _index_of(
    step: RuleStep | AttentionStep | RelationalStep,
) -> GroundIndex | AttentionIndex | RelationalIndex:
    match step:
        case RuleStep():
            return GroundIndex(step.ground)
        case RelationalStep():
            return RelationalIndex(step)
    return AttentionIndex(step)


@dataclass(frozen=True, eq=False)
class DemandIndex:
    """A grounded plan, prepared so that parts of it are found in time that follows their size."""

    executable: Executable
    limit: int
    # sources of which the plan has some rows alone: all of each, and those rows
    origins: Mapping[str, tuple[Source, Tensor]] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> dict[str, int]:
        sources = {name: source.index.rows for name, source in self.executable.sources.items()}
        return sources | {name: index.rows for name, index in self.executable.relations.items()}

    @cached_property
    def steps(self) -> list[RelationIndex | ComponentIndex]:
        return [self._index(step) for step in self.executable.steps]

    def _index(self, step: AnyStep) -> RelationIndex | ComponentIndex:
        if not isinstance(step, RelationStep):
            return ComponentIndex(step)
        parts = tuple(map(_index_of, step.steps))
        sizes = [self.executable.sources[step.relation].index.rows] if step.facts else []
        sizes += [part.rows for part in parts]
        return RelationIndex(step, MergeIndex(step.merge, tuple(sizes)), parts)

    def hops(self, outputs: Iterable[str]) -> int:
        """How many rules that aggregate are between outputs and data, by the rules alone."""
        depth, most = dict.fromkeys(outputs, 0), 0
        for index in reversed(self.steps):
            for hop, read in _reads_at(index, depth):
                most = max(most, hop)
                depth |= {name: max(depth.get(name, 0), hop) for name in read}
        return most

    def part(
        self, wanted: Mapping[str, Tensor], choose: Chooser | None = None
    ) -> tuple[Executable, dict[str, Tensor]]:
        """What some rows of some relations need, and the rows that it has of each relation."""
        need = Need(self.sizes)
        for relation, rows in wanted.items():
            need.add(relation, rows)
        facts: dict[str, Tensor] = {}
        found: list[TakenRelation | TakenComponent | ComponentIndex] = []
        for index in reversed(self.steps):
            if isinstance(index, RelationIndex):
                name = index.step.relation
                if name in need.rows and len(need.of(name)):
                    one = index.taken(need, choose)
                    facts |= {} if one.facts is None else {name: one.facts}
                    found.append(one)
            elif own := [
                n for n in index.component.relations if n in need.rows and len(need.of(n))
            ]:
                found.append(self._component(index, own, need, facts))
        steps: list[AnyStep] = []
        for taken in reversed(found):
            if isinstance(taken, TakenComponent):
                step, held = taken.built(need, self.limit)
                need.chosen |= held
                steps.append(step)
            elif isinstance(taken, ComponentIndex):
                steps.append(taken.step)
            else:
                steps.append(taken.built(need))
        return self._put_together(steps, need, facts), need.chosen

    def _component(
        self, index: ComponentIndex, own: list[str], need: Need, facts: dict[str, Tensor]
    ) -> TakenComponent | ComponentIndex:
        """What needed rows of a recursion come from; all of it, where it is not restricted."""
        component = index.component
        if not index.is_restricted:
            for relation in {r for g in component.grounds for r in reads(g).values()}:
                if relation not in component.relations:
                    need.add_all(relation)
            for name in component.relations:
                need.chosen[name] = torch.arange(self.sizes[name])
            facts |= {name: torch.arange(len(rows)) for name, rows in component.facts.items()}
            return index
        part = index.taken({name: need.of(name) for name in own})
        hop = max(need.hops[name] for name in own)
        for ground in part.grounds:
            need.add_reads(ground, hop, only=set(reads(ground).values()) - set(part.rows))
        facts |= part.facts
        return part

    def _put_together(
        self, steps: list[AnyStep], need: Need, facts: Mapping[str, Tensor]
    ) -> Executable:
        old, sources, taken, there = self.executable, dict[str, Source](), {}, {}
        derived = {name for step in steps for name in _relations(step)}
        for name, source in old.sources.items():
            read = name in need.rows or name in need.chosen
            rows = facts.get(name) if name in derived else need.of(name) if read else None
            if rows is None or not len(rows):
                continue
            if name in self.origins:
                source, own = self.origins[name]
                rows = own[rows]
            there[name] = source.index.rows
            sources[name], some = source_at(source, rows)
            if some is not None:
                taken[name] = some
        known = need.chosen.items()
        relations = {
            name: index if is_all(rows, index.rows) else Keys(keys_at(index, rows))
            for name, rows in known
            if (index := old.relations.get(name)) is not None
        }
        there |= {
            name: index.rows
            for name, index in old.relations.items()
            if name in derived and name in relations and not self.origins  # else not counted
        }
        return replace(
            old,
            sources=sources,
            steps=tuple(steps),
            relations=relations,
            taken=taken,
            there=there,
            in_full=dict(filter(None, map(_in_full, steps))),
        )


def _reads_at(
    index: RelationIndex | ComponentIndex, depth: Mapping[str, int]
) -> Iterator[tuple[int, set[str]]]:
    """What rules read, and how many hops from the outputs that is; nothing if they are not read."""
    known = [depth[name] for name in _relations(index.step) if name in depth]
    if not known:
        return
    if isinstance(index, ComponentIndex):
        for ground in index.component.grounds:
            yield max(known), set(reads(ground).values())
    else:
        for part in index.parts:
            yield max(known) + part.several, part.relations


def _in_full(step: AnyStep) -> tuple[str, str] | None:
    """A relation that is computed in full, and why."""
    if isinstance(step, Rounds) and not ComponentIndex(step).is_restricted:
        return ", ".join(step.component.relations), "the rounds of all samples are counted together"
    for part in step.steps if isinstance(step, RelationStep) else ():
        if isinstance(part, AttentionStep) and (reason := unrestricted(part)) is not None:
            return part.node.head.relation, reason
    return None


def _relations(step: AnyStep) -> list[str]:
    return [step.relation] if isinstance(step, RelationStep) else list(step.component.relations)
