"""Acyclic recursion: scheduled level by level, each level one batch of tensor work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from edgewise.functions.definition import ShapeMismatch
from edgewise.ground.index import Keys
from edgewise.physical.column import Column
from edgewise.physical.merge import merged
from edgewise.physical.recursion.parts import Component, Part, Stage, Task
from edgewise.physical.recursion.places import moved, order_of, places, rows_at, stage_sizes
from edgewise.physical.rule import RuleStep
from edgewise.physical.state import State


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
                values[number] = task.step(replace(state, relations=known))
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


def by_levels(
    component: Component, atom_stage: Mapping[str, np.ndarray], unit_stage: Sequence[np.ndarray]
) -> Levels:
    """Lay a component out by the stages of its atoms and computations."""
    place, stage_of = places(atom_stage)
    sizes = stage_sizes(atom_stage)
    tasks: list[Task] = []
    at_stage: dict[int, list[int]] = {}
    for rule, ground in enumerate(component.grounds):
        for number, chosen in _by_stage(component, rule, atom_stage, unit_stage[rule]):
            rows, reads = moved(ground, chosen, component.part, place, stage_of, sizes)
            step = RuleStep(ground.on(chosen, rows), component.default)
            heads = component.heads[rule][torch.unique(ground.segments.ids[chosen])]
            at_stage.setdefault(number, []).append(len(tasks))
            tasks.append(Task(step, reads, heads))
    numbers = sorted({*at_stage, *(n for s in sizes.values() for n in s if n)})
    stage_rows = {relation: rows_at(stage) for relation, stage in atom_stage.items()}
    adding = _adding(tasks, atom_stage)
    made = [
        Stage(
            number,
            tuple((t, tasks[t]) for t in at_stage.get(number, ())),
            tuple(_parts(component, number, stage_rows, adding, tasks)),
        )
        for number in numbers
    ]
    zero = {r: torch.from_numpy(np.flatnonzero(stage == 0)) for r, stage in atom_stage.items()}
    first = {r: _facts_at(component, r, rows) for r, rows in zero.items()}
    return Levels(
        component,
        tuple(made),
        {r: rows for r, rows in first.items() if rows is not None},
        {r: order_of(stage, sizes[r], place[r]) for r, stage in atom_stage.items()},
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
    stage_rows: Mapping[str, Mapping[int, Tensor]],
    adding: Mapping[tuple[str, int], Sequence[int]],
    tasks: Sequence[Task],
) -> Iterator[Part]:
    """How the atoms of one stage come from facts and tasks."""
    for relation in component.relations:
        if number not in stage_rows[relation]:
            continue
        rows = stage_rows[relation][number]
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


def _facts_at(component: Component, relation: str, rows: Tensor) -> Tensor | None:
    """Which facts, as rows of their column, are among some rows of the relation."""
    facts = component.facts.get(relation)
    if facts is None:
        return None
    found = torch.isin(facts, rows).nonzero()[:, 0]
    return found if len(found) else None


def _same(a: Keys, b: Keys) -> bool:
    return a.rows == b.rows and bool((a.keys == b.keys).all())
