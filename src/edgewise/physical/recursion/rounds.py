"""Cyclic recursion: in rounds, a fixed number or until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.evaluation import NoFixedPoint
from edgewise.ground.index import Keys
from edgewise.ground.joins.body import SAMPLE
from edgewise.ground.joins.join import PlanTooLarge, in_bytes
from edgewise.ground.topological import sources
from edgewise.language import nodes
from edgewise.physical.lowering import Lowering
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.merge import merged
from edgewise.physical.opaque import opaque
from edgewise.physical.plan import lowered_parts
from edgewise.physical.recursion.levels import Component, Part, Stage, Task
from edgewise.physical.rule import RuleStep

MANY = "how many rounds there are depends on values"


@dataclass(frozen=True, eq=False)
class Rounds:
    """Cyclic recursion: simultaneous rounds from the facts, a fixed number or until still."""

    component: Component
    rounds: tuple[Stage, ...]  # the last one repeats
    present: tuple[dict[str, Tensor], ...]  # rows that hold before round r
    count: int | None

    def __call__(self, state: State) -> dict[str, Column]:
        values = self.component.start(state)
        if self.count is None:
            return self._until_still(values, state)
        facts = dict(values)
        for number in range(self.count):
            stage = self.rounds[min(number, len(self.rounds) - 1)]
            values = self._round(stage, values, facts, state)
        return values

    def _until_still(self, start: dict[str, Column], state: State) -> dict[str, Column]:
        """One node with a graph for each round: how many rounds there are depends on values."""
        others = {n: c for n, c in state.relations.items() if n not in start}
        numbers, weights = dict(state.numbers), dict(state.weights)
        outer = [
            *(column.data for column in (*start.values(), *others.values(), *numbers.values())),
            *weights.values(),
        ]
        names, shapes, bodies = tuple(start), [c.data for c in start.values()], []

        for stage in self.rounds:

            def run(
                lowering: Lowering,
                symbols: Sequence[Tensor],
                names: tuple[str, ...] = names,
                stage: Stage = stage,
            ) -> dict[str, Tensor]:
                left = iter(symbols)
                values = {name: Column(next(left)) for name in names}
                facts = {name: Column(next(left)) for name in start}
                known = {name: Column(next(left)) for name in others}
                exact = {name: Column(next(left)) for name in numbers}
                held = {name: next(left) for name in weights}
                inner = replace(
                    state, relations=known, numbers=exact, weights=held, lowering=lowering
                )
                found = self._round(stage, values, facts, inner)
                return {name: column.data for name, column in found.items()}

            listed = [f"a{n}" for n in range(len(names) + len(outer))]
            plan, made = lowered_parts(run, listed, [*shapes, *outer], state.device, state.without)
            names, shapes = tuple(made), list(made.values())
            bodies.append((names, plan.function))
        rows = sum(index.rows for index in self.component.relations.values())
        repeated = torch.compiler.disable(_repeated, reason=MANY)  # loads Dynamo: a second, once
        loop = FixedPoint(tuple(bodies), shapes, self.component.grounds[0].rule, rows, repeated)
        found = until_still([column.data for column in start.values()], outer, loop)
        return {name: Column(data) for name, data in zip(names, found, strict=True)}

    def _round(
        self,
        stage: Stage,
        values: Mapping[str, Column],
        facts: Mapping[str, Column],
        state: State,
    ) -> dict[str, Column]:
        now = replace(state, relations=state.relations | dict(values))
        found = {number: task.step(now) for number, task in stage.tasks}
        return {
            part.relation: part(found, facts.get(part.relation), state.training)
            for part in stage.parts
        }


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """The graphs of rounds as functions, each with the relations it gives; the last repeats."""

    bodies: tuple[tuple[tuple[str, ...], Callable[..., tuple[Tensor, ...]]], ...]
    like: list[Tensor]
    rule: nodes.Rule
    rows: int
    repeated: Callable[[list[Tensor], list[Tensor], FixedPoint], list[Tensor]]


@opaque(like=lambda start, outer, loop: [x.like for x in loop.like])
def until_still(start: list[Tensor], outer: list[Tensor], loop: FixedPoint) -> list[Tensor]:
    """Rounds until nothing changes: at most one for each atom, and one to see it."""
    return loop.repeated(start, outer, loop)


@dataclass(frozen=True, eq=False)
class Late:
    """Samples of a ragged batch that start `delay` rounds after the others."""

    samples: Tensor
    delay: int


def late_samples(component: Component, levels: Mapping[str, np.ndarray], count: int) -> Late | None:
    """Samples with a cycle start late where others, which have none, need more than `count` rounds:
    each sample then has the values that it has alone."""
    if any(ground.rule.head.terms[:1] != (SAMPLE,) for ground in component.grounds):
        return None
    firsts = [component.relations[name].keys[:, 0] for name in levels]
    sample, level = torch.cat(firsts), torch.from_numpy(np.concatenate([*levels.values()]))
    cyclic = torch.unique(sample[level < 0])
    others = level[~torch.isin(sample, cyclic)]
    depth = (int(others.max()) + 1) // 2 if len(others) else 0  # rules have levels of their own
    return Late(cyclic, depth - count) if depth > count else None


def by_rounds(
    component: Component, count: int | None, limit: int, late: Late | None = None
) -> Rounds:
    """Simulate which atoms hold after each round, and lay each round out.

    The rows that all rounds read take at most `limit` bytes, as those of one rule do.
    """
    delay = 0 if late is None else late.delay
    count = None if count is None else count + delay
    total = (count or 0) * sum(ground.count for ground in component.grounds)
    if 8 * total > limit:
        name = next(iter(component.relations))
        raise PlanTooLarge(
            f"the {count:,} rounds for `{name}` have {total:,} groundings, which take "
            f"{in_bytes(8 * total)}, more than the limit of {in_bytes(limit)}",
            component.grounds[0].rule.place,
            "use fewer rounds, or raise `compile(..., limit=...)`",
        )
    present = {
        r: component.facts.get(r, torch.zeros(0, dtype=torch.int64)) for r in component.relations
    }
    history: list[dict[str, Tensor]] = [present]
    made: list[Stage] = []
    while count is None or len(made) < count:
        waiting = late.samples if late is not None and len(made) < delay else None
        stage, after = _one_round(component, present, len(made), waiting)
        made.append(stage)
        stable = len(made) > delay and all(torch.equal(after[r], present[r]) for r in after)
        present = after
        history.append(present)
        if stable:
            break
    return Rounds(component, tuple(made), tuple(history), count)


def _one_round(
    component: Component, present: Mapping[str, Tensor], number: int, waiting: Tensor | None
) -> tuple[Stage, dict[str, Tensor]]:
    tasks: list[Task] = []
    for ground, heads in zip(component.grounds, component.heads, strict=True):
        alive = torch.ones(ground.count, dtype=torch.bool)
        if waiting is not None:
            alive = ~torch.isin(ground.heads.keys[:, 0], waiting)[ground.segments.ids]
        moved = {}
        for at, rows in sources(ground, component.part).items():
            relation = ground.body.literals[at].relation  # type: ignore[union-attr]
            alive &= torch.isin(rows, present[relation])
            moved[at] = torch.searchsorted(present[relation], rows)
        chosen = alive.nonzero()[:, 0]
        if len(chosen):
            moved = {at: rows[chosen] for at, rows in moved.items()}
            step = RuleStep(ground.on(chosen, moved), component.default)
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


def _repeated(start: list[Tensor], outer: list[Tensor], loop: FixedPoint) -> list[Tensor]:
    """At most one round for each atom, and one to see that nothing changed."""
    values, last = tuple(start), len(loop.bodies) - 1
    for number in range(loop.rows + 2):
        before, (_, body) = values, loop.bodies[min(number, last)]
        values = body(*values, *outer)
        same = number >= last and len(before) == len(values)
        if same and all(torch.equal(a, b) for a, b in zip(before, values, strict=True)):
            return list(values)
    raise NoFixedPoint(
        f"`{loop.rule.head.relation}` still changes after {loop.rows} rounds, one for each of its "
        "atoms",
        loop.rule.place,
        "a cycle improves the value every time: remove it, or set `Program(..., rounds=k)`",
    )
