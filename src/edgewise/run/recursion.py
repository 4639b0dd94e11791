"""Recursion as tensor work: level by level, in rounds, or to a fixed point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.mismatch import ShapeMismatch
from edgewise.ground.index import Index, Keys
from edgewise.ground.levels import head_rows, restrict, sources
from edgewise.ground.rules import GroundRule
from edgewise.language import nodes
from edgewise.reference.evaluate import NoFixedPoint
from edgewise.run.column import Column
from edgewise.run.merge import Merge, merged
from edgewise.run.rule import RuleStep, State


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


@dataclass(frozen=True, eq=False)
class Levels:
    """Acyclic recursion: each stage reads only stages before it."""

    component: Component
    stages: tuple[Stage, ...]
    first: dict[str, Tensor]  # facts that no rule adds to, rows of the facts' column
    order: dict[str, Tensor]  # row of the relation → place among all stages' rows

    def __call__(self, state: State) -> dict[str, Column]:
        made: dict[str, dict[int, Column]] = {r: {} for r in self.component.relations}
        facts = self.component.start(state)
        for relation, rows in self.first.items():
            made[relation][0] = facts[relation].take(rows)
        values: dict[int, Column] = {}
        for stage in self.stages:
            for number, task in stage.tasks:
                known = state.relations | _joined(made, task.reads)
                values[number] = task.step(replace(state, relations=known, shared={}))
            for part in stage.parts:
                value = part(values, facts.get(part.relation), state.training)
                made[part.relation][stage.number] = value
        return {
            relation: _join([found[n] for n in sorted(found)], relation).take(self.order[relation])
            for relation, found in made.items()
            if found
        }


def _joined(
    made: Mapping[str, Mapping[int, Column]], reads: Mapping[str, tuple[int, ...]]
) -> dict[str, Column]:
    return {r: _join([made[r][s] for s in numbers], r) for r, numbers in reads.items()}


def _join(columns: Sequence[Column], relation: str) -> Column:
    if len(columns) == 1:
        return columns[0]
    if len({c.shape for c in columns}) > 1:
        raise ShapeMismatch(
            f"`{relation}` has values of different shapes",
            help="a compiled relation has values of one shape",
        )
    batch = max(c.data.shape[0] for c in columns)
    return Column(torch.cat([c.data.expand(batch, *c.data.shape[1:]) for c in columns], 1))


def levels(
    component: Component, atom_stage: Mapping[str, np.ndarray], unit_stage: Sequence[np.ndarray]
) -> Levels:
    """Lay a component out by the stages of its atoms and computations."""
    place, stage_of = _places(atom_stage)
    sizes = _stage_sizes(atom_stage)
    tasks: list[Task] = []
    at_stage: dict[int, list[int]] = {}
    for rule, ground in enumerate(component.grounds):
        for number, chosen in _by_stage(component, rule, atom_stage, unit_stage[rule]):
            moved, reads = _moved(ground, chosen, component.part, place, stage_of, sizes)
            step = RuleStep(restrict(ground, chosen, moved), component.default)
            heads = component.heads[rule][torch.unique(ground.segments.ids[chosen])]
            at_stage.setdefault(number, []).append(len(tasks))
            tasks.append(Task(step, reads, heads))
    numbers = sorted({*at_stage, *(n for s in sizes.values() for n in s if n)})
    rows_at = {relation: _rows_at(stage) for relation, stage in atom_stage.items()}
    adding = _adding(tasks, atom_stage)
    made = [
        Stage(
            number,
            tuple((t, tasks[t]) for t in at_stage.get(number, ())),
            tuple(_parts(component, number, rows_at, adding, tasks)),
        )
        for number in numbers
    ]
    zero = {r: torch.from_numpy(np.flatnonzero(stage == 0)) for r, stage in atom_stage.items()}
    first = {r: _facts_at(component, r, rows) for r, rows in zero.items()}
    return Levels(
        component,
        tuple(made),
        {r: rows for r, rows in first.items() if rows is not None},
        {r: _order(stage, sizes[r], place[r]) for r, stage in atom_stage.items()},
    )


def _by_stage(
    component: Component, rule: int, atom_stage: Mapping[str, np.ndarray], units: np.ndarray
) -> Iterator[tuple[int, Tensor]]:
    """The groundings of one rule by the stage that computes them.

    A head is computed together with its atom; a softmax group as soon as all it reads is there.
    """
    ground = component.grounds[rule]
    if ground.groups is None:
        stage = atom_stage[ground.rule.head.relation][component.heads[rule].numpy()]
    else:
        stage = np.maximum(units, 1)
    if not ground.count:
        return
    of_grounding = stage[ground.segments.ids.numpy()]
    order = np.argsort(of_grounding, kind="stable")
    values, starts = np.unique(of_grounding[order], return_index=True)
    for value, chosen in zip(values, np.split(order, starts[1:]), strict=True):
        yield int(value), torch.from_numpy(chosen)


def _parts(
    component: Component,
    number: int,
    rows_at: Mapping[str, Mapping[int, Tensor]],
    adding: Mapping[tuple[str, int], Sequence[int]],
    tasks: Sequence[Task],
) -> Iterator[Part]:
    """How the atoms of one stage come from facts and tasks."""
    for relation in component.relations:
        if number not in rows_at[relation]:
            continue
        rows = rows_at[relation][number]
        members, parts = [], []
        for t in adding.get((relation, number), ()):
            heads = tasks[t].heads
            mine = torch.isin(heads, rows)
            chosen = None if bool(mine.all()) else mine.nonzero()[:, 0]
            members.append((t, chosen))
            heads = heads if chosen is None else heads[chosen]
            parts.append(Keys(torch.searchsorted(rows, heads).unsqueeze(1)))
        facts = _facts_at(component, relation, rows)
        if facts is not None:
            held = component.facts[relation][facts]
            parts.insert(0, Keys(torch.searchsorted(rows, held).unsqueeze(1)))
        everything = Keys(torch.arange(len(rows)).unsqueeze(1))
        parts = [everything if _same(part, everything) else part for part in parts]
        merge = merged(relation, parts, facts is not None, component.lines.get(relation))
        yield Part(relation, merge, tuple(members), facts)


def _rows_at(stage: np.ndarray) -> dict[int, Tensor]:
    """The rows of each stage, ascending."""
    order = np.argsort(stage, kind="stable")
    numbers, starts = np.unique(stage[order], return_index=True)
    rows = np.split(order, starts[1:])
    return {int(n): torch.from_numpy(r) for n, r in zip(numbers, rows, strict=False)}


def _adding(
    tasks: Sequence[Task], atom_stage: Mapping[str, np.ndarray]
) -> dict[tuple[str, int], list[int]]:
    """The tasks that add to the atoms of a relation at a stage."""
    found: dict[tuple[str, int], list[int]] = {}
    for t, task in enumerate(tasks):
        relation = task.step.rule.head.relation
        for number in np.unique(atom_stage[relation][task.heads.numpy()]).tolist():
            found.setdefault((relation, number), []).append(t)
    return found


def _order(stage: np.ndarray, sizes: Mapping[int, int], place: Tensor) -> Tensor:
    """The place of each row among the rows of all stages, one stage after another."""
    base, start = np.zeros(max(sizes, default=0) + 1, dtype=np.int64), 0
    for number in sorted(sizes):
        base[number] = start
        start += sizes[number]
    return torch.from_numpy(base[stage]) + place


def _facts_at(component: Component, relation: str, rows: Tensor) -> Tensor | None:
    """Which facts, as rows of their column, are among some rows of the relation."""
    facts = component.facts.get(relation)
    if facts is None:
        return None
    found = torch.isin(facts, rows).nonzero()[:, 0]
    return found if len(found) else None


def _places(atom_stage: Mapping[str, np.ndarray]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """For each atom its place within its stage, and its stage."""
    places, stages = {}, {}
    for relation, stage in atom_stage.items():
        order = np.argsort(stage, kind="stable")
        sizes = np.bincount(stage, minlength=int(stage.max()) + 1 if len(stage) else 0)
        starts = np.cumsum(sizes) - sizes
        place = np.empty(len(stage), dtype=np.int64)
        place[order] = np.arange(len(stage)) - starts[stage[order]]
        places[relation] = torch.from_numpy(place)
        stages[relation] = torch.from_numpy(stage.copy())
    return places, stages


def _stage_sizes(atom_stage: Mapping[str, np.ndarray]) -> dict[str, dict[int, int]]:
    """Sizes of each stage of each relation."""
    return {
        relation: dict(
            zip(*(x.tolist() for x in np.unique(stage, return_counts=True)), strict=True)
        )
        for relation, stage in atom_stage.items()
    }


def _moved(
    ground: GroundRule,
    chosen: Tensor,
    part: set[str],
    place: Mapping[str, Tensor],
    stage_of: Mapping[str, Tensor],
    sizes: Mapping[str, dict[int, int]],
) -> tuple[dict[int, Tensor], dict[str, tuple[int, ...]]]:
    """Rows of recursive atoms as places in the joined stages that the rule reads."""
    read = {at: rows[chosen] for at, rows in sources(ground, part).items()}
    names = {at: ground.body.literals[at].relation for at in read}  # type: ignore[union-attr]
    wanted: dict[str, list[int]] = {}
    for at, rows in read.items():
        wanted.setdefault(names[at], []).extend(stage_of[names[at]][rows].unique().tolist())
    reads = {relation: tuple(sorted(set(numbers))) for relation, numbers in wanted.items()}
    moved = {}
    for at, rows in read.items():
        relation = names[at]
        start, base = 0, torch.zeros(max(reads[relation], default=0) + 1, dtype=torch.int64)
        for number in reads[relation]:
            base[number] = start
            start += sizes[relation][number]
        moved[at] = base[stage_of[relation][rows]] + place[relation][rows]
    return moved, reads


def _same(a: Keys, b: Keys) -> bool:
    return a.rows == b.rows and bool((a.keys == b.keys).all())


@dataclass(frozen=True, eq=False)
class Rounds:
    """Cyclic recursion: simultaneous rounds from the facts, as often as asked or until still."""

    component: Component
    rounds: tuple[Stage, ...]  # the last one repeats
    present: tuple[dict[str, Tensor], ...]  # rows that hold before round r
    count: int | None

    def __call__(self, state: State) -> dict[str, Column]:
        values = self.component.start(state)
        facts = dict(values)
        limit = sum(i.rows for i in self.component.relations.values()) + 2
        for number in range(self.count or limit):
            stage = self.rounds[min(number, len(self.rounds) - 1)]
            before = values
            values = self._round(stage, values, facts, state)
            if self.count is None and number >= len(self.rounds) - 1 and _still(before, values):
                return values
        if self.count is None:
            name = next(iter(self.component.relations))
            raise NoFixedPoint(
                f"`{name}` still changes after {limit - 2} rounds, one for each of its atoms",
                self.component.grounds[0].rule.place,
                "a cycle improves the value every time: remove it, or set `Program(..., rounds=k)`",
            )
        return values

    def _round(
        self,
        stage: Stage,
        values: Mapping[str, Column],
        facts: Mapping[str, Column],
        state: State,
    ) -> dict[str, Column]:
        now = replace(state, relations=state.relations | dict(values), shared={})
        found = {number: task.step(now) for number, task in stage.tasks}
        return {
            part.relation: part(found, facts.get(part.relation), state.training)
            for part in stage.parts
        }


def _still(before: Mapping[str, Column], after: Mapping[str, Column]) -> bool:
    return before.keys() == after.keys() and all(
        torch.equal(before[r].data, after[r].data) for r in after
    )


def rounds(component: Component, count: int | None) -> Rounds:
    """Simulate which atoms hold after each round, and lay each round out."""
    present = {
        r: component.facts.get(r, torch.zeros(0, dtype=torch.int64)) for r in component.relations
    }
    history: list[dict[str, Tensor]] = [present]
    made: list[Stage] = []
    while count is None or len(made) < count:
        stage, after = _one_round(component, present, len(made))
        made.append(stage)
        settled = all(torch.equal(after[r], present[r]) for r in after)
        present = after
        history.append(present)
        if settled:
            break
    return Rounds(component, tuple(made), tuple(history), count)


def _one_round(
    component: Component, present: Mapping[str, Tensor], number: int
) -> tuple[Stage, dict[str, Tensor]]:
    tasks: list[Task] = []
    for ground, heads in zip(component.grounds, component.heads, strict=True):
        alive = torch.ones(ground.count, dtype=torch.bool)
        moved = {}
        for at, rows in sources(ground, component.part).items():
            relation = ground.body.literals[at].relation  # type: ignore[union-attr]
            alive &= torch.isin(rows, present[relation])
            moved[at] = torch.searchsorted(present[relation], rows)
        chosen = alive.nonzero()[:, 0]
        if len(chosen):
            moved = {at: rows[chosen] for at, rows in moved.items()}
            step = RuleStep(restrict(ground, chosen, moved), component.default)
            tasks.append(Task(step, {}, heads[torch.unique(ground.segments.ids[chosen])]))
    after, parts = {}, []
    for relation in component.relations:
        part = _round_part(component, relation, tasks)
        after[relation] = (
            torch.zeros(0, dtype=torch.int64) if part is None else part.merge.index.column(0)
        )
        parts += [] if part is None else [part]
    return Stage(number, tuple(enumerate(tasks)), tuple(parts)), after


def _round_part(component: Component, relation: str, tasks: Sequence[Task]) -> Part | None:
    mine = [t for t, task in enumerate(tasks) if task.step.rule.head.relation == relation]
    facts = component.facts.get(relation)
    indices = [Keys(tasks[t].heads.unsqueeze(1)) for t in mine]
    if facts is not None and len(facts):
        indices.insert(0, Keys(facts.unsqueeze(1)))
    if not indices:
        return None
    with_facts = len(indices) > len(mine)
    merge = merged(relation, indices, with_facts, component.lines.get(relation))
    held = torch.arange(len(facts)) if with_facts and facts is not None else None
    return Part(relation, merge, tuple((t, None) for t in mine), held)
