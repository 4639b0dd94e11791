"""Relations that need one another: which of their atoms an edit reaches, and their values.

The atoms that hold are derived again. Those that a changed row reaches through values are computed
again, from the others as they are; where that could differ from computing everything (a number of
rounds, a minimum of something that may fall), all of them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.evaluation import is_extreme
from edgewise.ground.fixpoint import extend, least_fixpoint
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Index, distinct_rows, index_of, offsets_of, rows_of
from edgewise.ground.source import Source
from edgewise.ground.topological import head_rows, sources
from edgewise.language import functions, nodes
from edgewise.language.statements import atoms, combination
from edgewise.layouts.ragged import pointer, ranges
from edgewise.physical.build import build
from edgewise.physical.lowering import Lowering, to_device
from edgewise.physical.plan import lowered_parts, untraced
from edgewise.plan.nodes import Plan
from edgewise.update.delta import DeltaRule, Edit, Stratum
from edgewise.update.tables import Change, Table, change_of
from edgewise.update.values import state_of

if TYPE_CHECKING:
    from edgewise.module import Model


# of a relation: the keys that may differ, all its rows, and how many of them were computed
Recomputed = tuple[Tensor, Table, int]


class Recursion:
    """Recomputes relations that need one another."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self.model = model
        self.plan = plan

    def __call__(self, stratum: Stratum, edit: Edit) -> dict[str, Recomputed]:
        names, part = stratum.relations, set(stratum.relations)
        rules = tuple(rule.rule for rule in stratum.rules)
        lines = tuple(line for line in self.plan.lines if line.relation in part)
        plan = replace(self.plan, steps=rules, lines=lines, facts=())
        read = {atom.relation for rule in stratum.rules for atom in rule.atoms} - part
        tables = {name: edit.tables[name] for name in read if name in edit.tables}
        counts: dict[str, int] | None = None
        reason = why_all(rules, plan, part)
        if stratum.moves(edit) or reason is not None:
            tables |= _stated(edit, names)
            if not edit.first and reason is not None:
                edit.reasons.update(dict.fromkeys(names, reason))
        else:
            reached = self._reached(stratum, edit)
            tables |= self._start(stratum, edit, reached)
            counts = {name: len(keys) for name, keys in reached.items()}
            plan = replace(plan, steps=tuple(rule.restricted.rule for rule in stratum.rules))
        made = self._computed(plan, tables, edit, stratum)
        found: dict[str, Recomputed] = {}
        for name in names:
            old = edit.tables.get(name)
            table = made.get(name) or tables.get(name)
            if table is None:
                if old is None:
                    continue
                table = old.without(old.index.keys)
            keys = [t.index.keys for t in (old, table) if t is not None]
            count = table.index.rows if counts is None else counts.get(name, 0)
            found[name] = distinct_rows(torch.cat(keys)), table, count
        return found

    def _reached(self, stratum: Stratum, edit: Edit) -> dict[str, Tensor]:
        """The keys of the atoms to compute again, by relation; which atoms hold is derived."""
        part, now = set(stratum.relations), edit.now
        for name in part:
            now.relations.pop(name, None)
        now.relations.update({n: t.index for n, t in _stated(edit, stratum.relations).items()})
        bodies = [rule.body for rule in stratum.rules]
        least_fixpoint(now, bodies, part)
        grounds = [now.ground(body) for body in bodies]
        for ground in grounds:
            extend(now, ground.rule.head.relation, [ground.heads])
        changes = dict(edit.changes)
        for name in part & now.relations.keys() | part & edit.before.relations.keys():
            changes[name] = _key_change(edit, name)
        seeds = {name: [*changes[name].keys] if name in changes else [] for name in part}
        for name in part & edit.changes.keys():  # of facts
            seeds[name] += edit.changes[name].keys
        for rule in stratum.rules:
            seeds[rule.rule.head.relation].append(rule.reached(edit, changes))
        indices = {name: now.relations[name] for name in sorted(part & now.relations.keys())}
        start = {name: torch.cat(seeds[name]) for name in indices if seeds[name]}
        return closure(grounds, stratum.rules, indices, start)

    def _start(
        self, stratum: Stratum, edit: Edit, reached: Mapping[str, Tensor]
    ) -> dict[str, Table]:
        """What atoms are computed again from: facts among them, all other atoms as if they were
        facts, and which rule heads each rule may have."""
        stated, tables = _stated(edit, stratum.relations), {}
        for name, again in reached.items():
            held = [stated[name].at(again)] if name in stated else []
            if name in edit.tables:
                held.append(edit.tables[name].at(edit.now.relations[name].keys).without(again))
            held = [table for table in held if table.index.rows]
            if held:
                first, *more = held
                tables[name] = first
                for table in more:
                    tables[name] = first.with_rows(table.index.keys, table.data)
        for rule in stratum.rules:
            head = rule.rule.head
            none = torch.zeros(0, len(head.terms), dtype=torch.int64)
            keys = rule.bound(reached.get(head.relation, none))
            tables[rule.wanted] = Table(index_of(keys), self.model._one.new_ones(len(keys)))
        return tables

    def _computed(
        self, plan: Plan, tables: Mapping[str, Table], edit: Edit, stratum: Stratum
    ) -> dict[str, Table]:
        """The relations of a plan over tables."""
        model, unit = self.model, self.model._one
        weights = {name: edit.weights[name] for name in stratum.weights}
        sources = {n: Source(t.index, stored=t.data, shape=t.shape) for n, t in tables.items()}
        names, tensors = [*tables, *weights], [t.data.unsqueeze(0) for t in tables.values()]

        def run(lowering: Lowering, symbols: Sequence[Tensor]) -> dict[str, Tensor]:
            columns = dict(zip(tables, symbols, strict=False))
            own = dict(zip(weights, symbols[len(tables) :], strict=True))
            found = executable.run(state_of(columns, own, unit, lowering))
            return {n: found[n].data.squeeze(0) for n in stratum.relations if n in found}

        with untraced():
            built = build(
                plan,
                sources,
                edit.now.constants,
                limit=model.limit,
                weights=weights,
                shapes={name: source.shape for name, source in sources.items()},
                lift=False,
            )
            executable = to_device(built, unit.device)
            tensors += weights.values()
            step, made = lowered_parts(run, names, tensors, unit.device, model.without)
        indices = [built.relations[name] for name in made]
        values = zip(made, indices, step.function(*tensors), strict=True)
        return {n: Table(i, data.expand(i.rows, *data.shape[1:])) for n, i, data in values}


def _stated(edit: Edit, names: Iterable[str]) -> dict[str, Table]:
    """The facts of some relations."""
    return {n: edit.facts[n] for n in names if n in edit.facts and edit.facts[n].index.rows}


def _key_change(edit: Edit, name: str) -> Change:
    """The atoms of a relation that are new or gone."""
    old, new = (
        None if index is None else Table(index, torch.zeros(index.rows))
        for index in (edit.before.relations.get(name), edit.now.relations.get(name))
    )
    keys = [table.index.keys for table in (old, new) if table is not None]
    return change_of(old, new, distinct_rows(torch.cat(keys)))


def why_all(rules: Sequence[nodes.Rule], plan: Plan, part: set[str]) -> str | None:
    """Why atoms cannot be computed from final values of others; None where they can.

    Rounds of a fixed number read values of the round before; minima and maxima around a cycle end
    at the same values from any start if what they compare only grows with what it reads. The axes
    of a pattern are as long as recursion makes them.
    """
    if plan.rounds is not None:
        return "rounds read values of the round before"
    if any(_has_pattern(rule) for rule in rules):
        return "the axes of a pattern are as long as recursion makes them"
    lines = {line.relation: line for line in plan.lines}
    changed = [functions.kind(f) for line in plan.lines for f in line.functions]
    if functions.TRANSFORMATION in changed:
        return "a line transforms values that recursion reads"
    if not any(is_extreme(lines.get(r), rules, part, r, plan.aggregation) for r in part):
        return None
    if all(_only_sums(rule, part) for rule in rules):
        return None
    return "a minimum or maximum around a cycle compares more than sums"


def _has_pattern(rule: nodes.Rule) -> bool:
    return any(isinstance(atom, nodes.PatternAtom) for atom in atoms(rule))


def _only_sums(rule: nodes.Rule, part: set[str]) -> bool:
    """Whether a rule adds what it reads of `part` to something: x + c is monotone."""
    kinds = [functions.kind(f) for f in rule.functions]
    plain = functions.TRANSFORMATION not in kinds and rule.head.weight is None
    recursive = [b for b in rule.body if _reads(b, part)]
    alone = all(isinstance(b, nodes.Atom) and b.weight is None for b in recursive)
    return not recursive or (plain and alone and combination(rule.functions).name == "sum")


def _reads(item: nodes.Expression, part: set[str]) -> bool:
    match item:
        case nodes.Atom():
            return item.relation in part and item.carries_value
        case nodes.Apply(operands=operands):
            return any(_reads(operand, part) for operand in operands)
    return False


def closure(
    grounds: Sequence[GroundRule],
    rules: Sequence[DeltaRule],
    indices: Mapping[str, Index],
    seeds: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The keys of atoms that read seeds, through any number of groundings, seeds included.

    Rule heads that are normalised together are reached together.
    """
    part = set(indices)
    offsets, total = offsets_of(indices)
    count, starts, ends = total, [], []
    for ground, rule in zip(grounds, rules, strict=True):
        relation = ground.rule.head.relation
        heads = head_rows(ground, indices[relation]).numpy() + offsets[relation]
        units = count + _units(ground, rule)
        count = max(count, int(units.max(initial=-1)) + 1)
        starts += [units] if rule.exact else [units, heads]
        ends += [heads] if rule.exact else [heads, units]
        of_grounding = units[ground.segments.ids.numpy()]
        for at, read in sources(ground, part).items():
            literal = ground.body.literals[at]
            assert isinstance(literal, nodes.Atom)
            starts.append(read.numpy() + offsets[literal.relation])
            ends.append(of_grounding)
    marked = np.zeros(count, dtype=bool)
    for relation, keys in seeds.items():
        rows = rows_of(indices[relation], keys).numpy()
        marked[rows[rows >= 0] + offsets[relation]] = True
    _spread(marked, np.concatenate(starts), np.concatenate(ends))
    return {
        r: index.keys[torch.from_numpy(marked[offsets[r] : offsets[r] + index.rows])]
        for r, index in indices.items()
    }


def _units(ground: GroundRule, rule: DeltaRule) -> np.ndarray:
    """A number for each rule head; the same for those that are computed together."""
    if rule.exact:
        return np.arange(ground.heads.rows)
    bound = ground.heads.keys[:, rule.bound_places]
    if not bound.shape[1]:
        return np.zeros(len(bound), dtype=np.int64)
    return torch.unique(bound, dim=0, return_inverse=True)[1].numpy()


def _spread(marked: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
    """Mark all that edges from marked nodes reach, a frontier at a time."""
    targets = ends[np.argsort(starts, kind="stable")]
    ptr = pointer(np.bincount(starts, minlength=len(marked)))
    frontier = np.flatnonzero(marked)
    while len(frontier):
        reached = targets[ranges(ptr[frontier], ptr[frontier + 1] - ptr[frontier])]
        frontier = np.unique(reached[~marked[reached]])
        marked[frontier] = True
