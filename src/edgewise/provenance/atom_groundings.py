"""One atom of a compiled model: its groundings, and the values that they read.

What is behind the atom is found top-down (`relevant.py`) and computed by physical plans, relation
by relation; the reference then explains the atom from those values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from edgewise.ground.index import Constants, Index, index_of, rows_of
from edgewise.ground.join import Bindings
from edgewise.ground.rules import Grounder, GroundRule
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs, reachable
from edgewise.language.statements import weights
from edgewise.plan.nodes import Plan
from edgewise.provenance.relevant_atoms import Relevant
from edgewise.update.delta import DeltaRule
from edgewise.update.tables import Table
from edgewise.update.values import RelationValues

if TYPE_CHECKING:
    from edgewise.module import Model

Assignment = dict[str, nodes.Constant]


@dataclass(frozen=True, eq=False)
class Behind:
    """What an atom is computed from: values by relation, and the groundings of its own rules."""

    tables: Mapping[str, Table]
    groundings: Mapping[nodes.Rule, list[tuple[Assignment, Assignment]]]
    constants: Constants
    count: int  # groundings that were evaluated

    def values(
        self, names: Iterable[str]
    ) -> Iterator[tuple[tuple[str, tuple[nodes.Constant, ...]], Tensor]]:
        """The values of atoms of some relations."""
        for name in names:
            table = self.tables.get(name)
            if table is None:
                continue
            keys, constant = table.index.keys.tolist(), self.constants.constant
            for key, value in zip(keys, table.data, strict=True):
                yield (name, tuple(map(constant, key))), value


def value_recursive(plan: Plan, relation: str) -> bool:
    """Whether values that a relation needs depend on themselves."""
    graph = needs(plan.rules, values_only=True)
    reached = reachable(graph, [relation])
    return any(
        part & reached and any(part & graph[name] for name in part) for part in components(graph)
    )


def behind(
    model: Model,
    atom: nodes.Atom,
    facts: Mapping[str, Table],
    known: Mapping[str, Index],
    constants: Constants,
) -> Behind:
    """What an atom is computed from; `known` are keys of relations that rules derive."""
    plan: Plan = model.stages["plan"]
    domains = dict(plan.domains)
    rules: dict[str, list[DeltaRule]] = {}
    for number, rule in enumerate(plan.rules):
        rules.setdefault(rule.head.relation, []).append(DeltaRule(rule, domains, number))
    indices = {name: table.index for name, table in facts.items() if name not in rules}
    grounder = Grounder(constants, domains, {**indices, **known}, model.limit)
    stated = {name: table.index for name, table in facts.items()}
    relevant = Relevant(rules, grounder, stated)
    relevant.add(atom.relation, constants.keys([atom.terms], len(atom.terms)))  # type: ignore[list-item]
    order = [name for part in components(needs(plan.rules, values_only=True)) for name in part]
    for name in reversed(order):
        if relevant.keys(name) is not None:
            relevant.follow(name)
    return _computed(model, plan, atom.relation, relevant, facts, order)


def _computed(
    model: Model,
    plan: Plan,
    relation: str,
    relevant: Relevant,
    facts: Mapping[str, Table],
    order: list[str],
) -> Behind:
    """The values of relevant atoms, each relation after those that it reads."""
    tables: dict[str, Table] = {}
    for name, table in facts.items():
        keys = relevant.keys(name)
        if keys is not None and name not in relevant.rules:
            tables[name] = table.at(keys)
    values, lines = RelationValues(model, plan.aggregation), {li.relation: li for li in plan.lines}
    count = 0
    for name in order:
        keys = relevant.keys(name)
        if keys is None:
            continue
        rules = relevant.rules[name]
        known = {r: table.index for r, table in tables.items()}
        grounder = replace(relevant.known, relations=known, joins={})
        grounds = [_ground(rule, relevant.bindings[rule], grounder) for rule in rules]
        own = facts[name].at(keys) if name in facts else None
        own = own if own is not None and own.index.rows else None
        count += sum(ground.count for ground in grounds)
        if own is None and not any(ground.count for ground in grounds):
            continue
        used = dict.fromkeys(str(w.name) for rule in rules for w in weights(rule.rule))
        read = {weight: model.weight(weight) for weight in used}
        tables[name] = values(name, grounds, own, lines.get(name), tables, read)
    own_rules = relevant.rules.get(relation, ())
    found = {r.rule: list(_assignments(r, relevant)) for r in own_rules}
    return Behind(tables, found, relevant.known.constants, count)


def _ground(rule: DeltaRule, bindings: Bindings, grounder: Grounder) -> GroundRule:
    """The ground rule of bindings that were joined before, over tables of relevant atoms."""
    body, rows = rule.restricted, dict(bindings.rows)
    for at, literal in enumerate(body.literals):
        if isinstance(literal, nodes.Atom) and literal.carries_value:
            keys = grounder.keys(literal, bindings)
            rows[at] = rows_of(grounder.index(literal.relation, len(literal.terms)), keys)
    return grounder.finish(body, replace(bindings, rows=rows))


def _assignments(rule: DeltaRule, relevant: Relevant) -> Iterator[tuple[Assignment, Assignment]]:
    """The groundings of a rule: what they assign, and all variables that say how they hold."""
    bindings, constant = relevant.bindings[rule], relevant.known.constants.constant
    columns = {name: column.tolist() for name, column in bindings.columns.items()}
    for row in range(bindings.count):
        every = {name: constant(column[row]) for name, column in columns.items()}
        yield {name: every[name] for name in rule.body.visible}, every


def one_sample(index: Index, sample: int) -> tuple[Index, Tensor]:
    """The keys of one sample, whose number is the first key, and their rows."""
    mine = (index.column(0) == sample).nonzero()[:, 0]
    return index_of(index.keys[mine][:, 1:]), mine
