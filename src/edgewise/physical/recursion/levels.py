"""Acyclic recursion: scheduled level by level, each level one batch of tensor work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.functions.definition import ShapeMismatch
from edgewise.ground.ground_rule import GroundRule, split
from edgewise.ground.index import Index, Keys
from edgewise.ground.topological import head_rows, sources
from edgewise.kernels.kernel_choices import Chosen, note
from edgewise.language import nodes
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.merge import Merge, merged
from edgewise.physical.recursion.repeats import Repeats
from edgewise.physical.recursion.scan import scanned
from edgewise.physical.rule import RuleStep


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
        start = [] if self.facts is None or facts is None else [facts.take(self.facts)]
        return self.merge([*start, *(values[t].take(rows) for t, rows in self.members)], training)


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


def places(atom_stage: Mapping[str, np.ndarray]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """For each atom its place in its stage, and its stage."""
    found, stages = {}, {}
    for relation, stage in atom_stage.items():
        order = np.argsort(stage, kind="stable")
        sizes = np.bincount(stage, minlength=int(stage.max()) + 1 if len(stage) else 0)
        starts = np.cumsum(sizes) - sizes
        place = np.empty(len(stage), dtype=np.int64)
        place[order] = np.arange(len(stage)) - starts[stage[order]]
        found[relation] = torch.from_numpy(place)
        stages[relation] = torch.from_numpy(stage.copy())
    return found, stages


def stage_sizes(atom_stage: Mapping[str, np.ndarray]) -> dict[str, dict[int, int]]:
    """Sizes of each stage of each relation."""
    return {
        relation: dict(
            zip(*(x.tolist() for x in np.unique(stage, return_counts=True)), strict=True)
        )
        for relation, stage in atom_stage.items()
    }


def moved(
    ground: GroundRule,
    chosen: Tensor,
    task: np.ndarray,
    part: set[str],
    place: Mapping[str, Tensor],
    stage_of: Mapping[str, Tensor],
    sizes: Mapping[str, dict[int, int]],
) -> tuple[dict[int, Tensor], list[dict[str, tuple[int, ...]]]]:
    """Rows of recursive atoms as places in the joined stages that a task reads, and those stages;
    `task` is that of each grounding, ascending."""
    read: dict[str, dict[int, Tensor]] = {}
    for at, rows in sources(ground, part).items():
        literal = ground.body.literals[at]
        assert isinstance(literal, nodes.Atom)
        read.setdefault(literal.relation, {})[at] = rows[chosen]
    found: dict[int, Tensor] = {}
    reads: list[dict[str, tuple[int, ...]]] = [{} for _ in range(int(task.max()) + 1)]
    for relation, own in read.items():
        stages = max(sizes[relation], default=0) + 1
        codes = {at: task * stages + stage_of[relation][rows].numpy() for at, rows in own.items()}
        every = np.unique(np.concatenate(list(codes.values())))
        tasks, numbers = every // stages, every % stages
        rows_of_stage = np.zeros(stages, dtype=np.int64)
        rows_of_stage[list(sizes[relation])] = list(sizes[relation].values())
        before = np.cumsum(rows_of_stage[numbers]) - rows_of_stage[numbers]
        first = np.searchsorted(tasks, tasks)  # of the same task
        base = torch.from_numpy(before - before[first])
        for at, rows in own.items():
            index = torch.from_numpy(np.searchsorted(every, codes[at]))
            found[at] = base[index] + place[relation][rows]
        starts = np.flatnonzero(np.diff(tasks, prepend=-1))
        for k, stretch in zip(tasks[starts].tolist(), np.split(numbers, starts[1:]), strict=True):
            reads[k][relation] = tuple(stretch.tolist())
    return found, reads


def order_of(stage: np.ndarray, sizes: Mapping[int, int], place: Tensor) -> Tensor:
    """The place of each row among the rows of all stages, one stage after another."""
    base, start = np.zeros(max(sizes, default=0) + 1, dtype=np.int64), 0
    for number in sorted(sizes):
        base[number] = start
        start += sizes[number]
    return torch.from_numpy(base[stage]) + place


def rows_at(stage: np.ndarray) -> dict[int, Tensor]:
    """The rows of each stage, ascending."""
    order = np.argsort(stage, kind="stable")
    numbers, starts = np.unique(stage[order], return_index=True)
    rows = np.split(order, starts[1:])
    return {int(n): torch.from_numpy(r) for n, r in zip(numbers, rows, strict=False)}


@dataclass(frozen=True, eq=False)
class Levels:
    """Acyclic recursion: each stage reads only stages before it."""

    component: Component
    atom_stage: dict[str, np.ndarray]
    unit_stage: list[np.ndarray]

    def __call__(self, state: State) -> dict[str, Column]:
        found = scanned(self, state)
        if not isinstance(found, str):
            return found
        note(Chosen("scan", "levels", (("scan", found),)))
        return self._one_by_one(state)

    def _one_by_one(self, state: State) -> dict[str, Column]:
        made: dict[str, dict[int, Column]] = {r: {} for r in self.component.relations}
        facts = self.component.start(state)
        for relation, rows in self.first.items():
            made[relation][0] = facts[relation].take(rows)
        values: dict[int, Column] = {}
        compute = Repeats(state)
        for stage in self.stages:
            for number, task in stage.tasks:
                values[number] = compute(task.step, _joined(made, task.reads))
            for part in stage.parts:
                value = part(values, facts.get(part.relation), state.training)
                made[part.relation][stage.number] = value
        return {
            relation: _join([found[n] for n in sorted(found)], relation).take(self.order[relation])
            for relation, found in made.items()
            if found
        }

    @property
    def depth(self) -> int:
        """How many stages there are after that of facts."""
        units = zip(self.component.grounds, self.unit_stage, strict=True)
        groups = [np.maximum(unit, 1) for ground, unit in units if ground.groups is not None]
        numbers = np.concatenate([*self.atom_stage.values(), *groups])
        return len(np.unique(numbers[numbers > 0]))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return _stages(self.component, self.atom_stage, self.unit_stage)

    @cached_property
    def first(self) -> dict[str, Tensor]:
        """Facts that no rule adds to, rows of the facts' column."""
        zero = {r: torch.from_numpy(np.flatnonzero(s == 0)) for r, s in self.atom_stage.items()}
        found = {r: _facts_at(self.component, r, rows) for r, rows in zero.items()}
        return {r: rows for r, rows in found.items() if rows is not None}

    @cached_property
    def order(self) -> dict[str, Tensor]:
        """Row of the relation → place among the rows of all stages."""
        place, _ = places(self.atom_stage)
        sizes = stage_sizes(self.atom_stage)
        return {r: order_of(s, sizes[r], place[r]) for r, s in self.atom_stage.items()}

    def complete(self) -> None:
        """Work out what lazily depends on keys, while they are on the CPU."""
        _ = self.stages, self.first, self.order


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


def by_levels(
    component: Component, atom_stage: Mapping[str, np.ndarray], unit_stage: Sequence[np.ndarray]
) -> Levels:
    """A component with the stages of its atoms and computations."""
    return Levels(component, dict(atom_stage), list(unit_stage))


def _stages(
    component: Component, atom_stage: Mapping[str, np.ndarray], unit_stage: Sequence[np.ndarray]
) -> tuple[Stage, ...]:
    """Lay a component out by the stages of its atoms and computations."""
    place, stage_of = places(atom_stage)
    sizes = stage_sizes(atom_stage)
    tasks: list[Task] = []
    at_stage: dict[int, list[int]] = {}
    for rule, ground in enumerate(component.grounds):
        if not ground.count:
            continue
        chosen, starts, stages = _by_stage(component, rule, atom_stage, unit_stage[rule])
        task = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(chosen)))
        rows, reads = moved(ground, chosen, task, component.part, place, stage_of, sizes)
        for k, (part, heads) in enumerate(split(ground, chosen, starts, rows)):
            at_stage.setdefault(stages[k], []).append(len(tasks))
            step = RuleStep(part, component.default)
            tasks.append(Task(step, reads[k], component.heads[rule][heads]))
    numbers = sorted({*at_stage, *(n for s in sizes.values() for n in s if n)})
    stage_rows = {relation: rows_at(stage) for relation, stage in atom_stage.items()}
    adding = _adding(tasks, atom_stage)
    return tuple(
        Stage(
            number,
            tuple((t, tasks[t]) for t in at_stage.get(number, ())),
            tuple(_parts(component, number, stage_rows, adding, tasks)),
        )
        for number in numbers
    )


def _by_stage(
    component: Component, rule: int, atom_stage: Mapping[str, np.ndarray], units: np.ndarray
) -> tuple[Tensor, np.ndarray, list[int]]:
    """The groundings of one rule ordered by the stage that computes them, where each stage starts,
    and which one it is.

    A head is computed together with its atom; a softmax group as soon as all it reads is there.
    """
    ground = component.grounds[rule]
    if ground.groups is None:
        stage = atom_stage[ground.rule.head.relation][component.heads[rule].numpy()]
    else:
        stage = np.maximum(units, 1)
    of_grounding = stage[ground.segments.ids.numpy()]
    order = np.argsort(of_grounding, kind="stable")
    values, starts = np.unique(of_grounding[order], return_index=True)
    return torch.from_numpy(order), starts, values.tolist()


def _parts(
    component: Component,
    number: int,
    stage_rows: Mapping[str, Mapping[int, Tensor]],
    adding: Mapping[tuple[str, int], Sequence[int]],
    tasks: Sequence[Task],
) -> Iterator[Part]:
    """How the atoms of one stage come from facts and tasks."""
    for relation in component.relations:
        if number not in stage_rows[relation]:
            continue
        rows = stage_rows[relation][number]
        everything = Keys(torch.arange(len(rows)).unsqueeze(1))
        members: list[tuple[int, Tensor | None]] = []
        parts = []
        for t in adding.get((relation, number), ()):
            heads = tasks[t].heads
            if torch.equal(heads, rows):
                members.append((t, None))
                parts.append(everything)
                continue
            mine = torch.isin(heads, rows)
            chosen = None if bool(mine.all()) else mine.nonzero()[:, 0]
            members.append((t, chosen))
            heads = heads if chosen is None else heads[chosen]
            parts.append(Keys(torch.searchsorted(rows, heads).unsqueeze(1)))
        facts = _facts_at(component, relation, rows)
        if facts is not None:
            held = component.facts[relation][facts]
            parts.insert(0, Keys(torch.searchsorted(rows, held).unsqueeze(1)))
        parts = [everything if _same(part, everything) else part for part in parts]
        merge = merged(relation, parts, facts is not None, component.lines.get(relation))
        yield Part(relation, merge, tuple(members), facts)


def _adding(
    tasks: Sequence[Task], atom_stage: Mapping[str, np.ndarray]
) -> dict[tuple[str, int], list[int]]:
    """The tasks that add to the atoms of a relation at a stage."""
    found: dict[tuple[str, int], list[int]] = {}
    for t, task in enumerate(tasks):
        relation = task.step.rule.head.relation
        stages = atom_stage[relation][task.heads.numpy()]
        for number in dict.fromkeys(stages.tolist()):
            found.setdefault((relation, number), []).append(t)
    return found


def _facts_at(component: Component, relation: str, rows: Tensor) -> Tensor | None:
    """Which facts, as rows of their column, are among some rows of the relation."""
    facts = component.facts.get(relation)
    if facts is None:
        return None
    found = torch.isin(facts, rows).nonzero()[:, 0]
    return found if len(found) else None


def _same(a: Keys, b: Keys) -> bool:
    return a is b or (a.rows == b.rows and bool((a.keys == b.keys).all()))
