"""Values of some rule heads, by physical plans that are reused where rows are read alike."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Index
from edgewise.language import nodes
from edgewise.physical.lowering import Lowering, to_device
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.merge import aligned, merge_of
from edgewise.physical.plan import PhysicalPlan, lowered, untraced
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import RelationStep
from edgewise.update.tables import Table

if TYPE_CHECKING:
    from edgewise.module import Model

MOST_PLANS = 64
REUSED = 1 << 10  # groundings, above which lowering is cheap beside the rest of an edit


def state_of(
    columns: Mapping[str, Tensor], weights: Mapping[str, Tensor], unit: Tensor, lowering: Lowering
) -> State:
    """What rules read; integers stay exact beside their numbers."""
    found = {name: Column(data) for name, data in columns.items()}
    exact = {name: c for name, c in found.items() if not c.data.is_floating_point()}
    found |= {name: Column(c.data.to(unit.dtype)) for name, c in exact.items()}
    return State(found, weights, False, unit.dtype, unit.device, lowering, numbers=exact)


class RelationValues:
    """Computes ground rules of one relation; plans are held for patterns of rows."""

    def __init__(self, model: Model, default: nodes.Function) -> None:
        self._model = model
        self._default = default
        self._plans: dict[Hashable, PhysicalPlan] = {}

    def __call__(
        self,
        relation: str,
        grounds: Sequence[GroundRule],
        facts: Table | None,
        line: nodes.Line | None,
        tables: Mapping[str, Table],
        weights: Mapping[str, Tensor],
    ) -> Table:
        """The rows that ground rules and facts give; there is at least one."""
        numbers = tuple(n for n, ground in enumerate(grounds) if ground.count)
        reads = rows_read([grounds[n] for n in numbers], tables)
        local = [reading(grounds[n], reads) for n in numbers]
        columns = {n: tables[n].rows(rows) for n, rows in reads.items()}
        parts: list[Index] = [g.heads for g in local]
        if facts is not None:
            parts.insert(0, facts.index)
            columns[relation] = facts.data
        index, places = aligned(parts)
        tensors = [*(data.unsqueeze(0) for data in columns.values()), *weights.values()]
        key: Hashable = None
        if sum(g.count for g in local) <= REUSED:
            key = (relation, numbers, *map(_key, local), *map(_bytes, places))
        plan = self._plans.get(key)
        if plan is None or not plan.fits(tensors):
            sizes, stated = [p.rows for p in parts], facts is not None
            merge = merge_of(relation, index, index.rows, places, sizes, stated, line)
            steps = tuple(RuleStep(g, self._default) for g in local)
            step = RelationStep(relation, steps, merge, stated)
            plan = self._lowered(step, list(columns), list(weights), tensors)
            if key is not None:
                if len(self._plans) >= MOST_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = plan
        return Table(index, plan(*tensors))

    def _lowered(
        self,
        step: RelationStep,
        relations: Sequence[str],
        weights: Sequence[str],
        tensors: Sequence[Tensor],
    ) -> PhysicalPlan:
        unit = self._model._one
        step = to_device(step, unit.device)

        def run(lowering: Lowering, symbols: Sequence[Tensor]) -> Tensor:
            columns = dict(zip(relations, symbols, strict=False))
            used = dict(zip(weights, symbols[len(relations) :], strict=True))
            state = state_of(columns, used, unit, lowering)
            return step(state)[step.relation].data.squeeze(0)

        names = (*relations, *weights)
        with untraced():
            return lowered(run, names, tensors, unit.device, without=self._model.without)


def rows_read(
    grounds: Sequence[GroundRule], tables: Mapping[str, Table]
) -> dict[str, Tensor | None]:
    """The distinct rows of each relation that ground rules read; None for all of them."""
    found: dict[str, list[Tensor | None]] = {}
    for ground in grounds:
        for at, rows in ground.rows.items():
            literal = ground.body.literals[at]
            if isinstance(literal, nodes.Atom):
                found.setdefault(literal.relation, []).append(rows)
    chosen: dict[str, Tensor | None] = {}
    for name, parts in found.items():
        some = [rows for rows in parts if rows is not None]
        every = len(some) < len(parts) or sum(map(len, some)) >= tables[name].index.rows
        chosen[name] = None if every else torch.cat(some).unique()
    return chosen


def reading(ground: GroundRule, chosen: Mapping[str, Tensor | None]) -> GroundRule:
    """The same ground rule where relations hold the chosen rows alone."""
    rows, sizes = dict(ground.rows), dict(ground.sizes)
    for at, read in ground.rows.items():
        literal = ground.body.literals[at]
        some = chosen[literal.relation] if isinstance(literal, nodes.Atom) else None
        if read is not None and some is not None:
            local, sizes[at] = torch.searchsorted(some, read.contiguous()), len(some)
            in_order = len(local) == len(some) and torch.equal(local, torch.arange(len(some)))
            rows[at] = None if in_order else local
    return replace(ground, rows=rows, sizes=sizes)


def _key(ground: GroundRule) -> Hashable:
    """What decides the plan of a ground rule besides the shapes that it reads."""
    groups = None if ground.groups is None else ground.groups.ids
    read = [_bytes(rows) for rows in ground.rows.values()]
    numbers = [(number.dtype, _bytes(number)) for number in ground.numbers.values()]
    return ground.count, *read, *numbers, _bytes(ground.segments.ids), _bytes(groups)


def _bytes(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.numpy().tobytes()
