"""What one atom follows from: the part of a grounded model behind it, found from the atom down.

Each rule is joined for the rule heads that are needed (magic sets), so that the time follows what
is found, not all groundings. Values of what is found are computed by physical plans, relation by
relation; the reference then explains the atom from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import (
    Constants,
    Grid,
    Index,
    Keys,
    distinct_rows,
    index_of,
    pack,
    rows_of,
    run_starts,
)
from edgewise.ground.joins.body import Body
from edgewise.ground.joins.join import Bindings, Budget
from edgewise.ground.magic_sets import SMALL, rows_among
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs, reachable
from edgewise.language.statements import weights
from edgewise.plan.nodes import Plan
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
    plan: Plan,
    atom: nodes.Atom,
    facts: Mapping[str, Table],
    known: Mapping[str, Index],
    constants: Constants,
) -> Behind:
    """What an atom is computed from; `known` are keys of relations that rules derive."""
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


@dataclass(frozen=True, eq=False)
class Relevant:
    """Rules by relation over what is known: facts, and the keys of some derived relations."""

    rules: Mapping[str, Sequence[DeltaRule]]
    known: Grounder
    facts: Mapping[str, Index]
    found: dict[str, list[Tensor]] = field(default_factory=dict)  # keys of relevant atoms
    bindings: dict[DeltaRule, Bindings] = field(default_factory=dict)  # of their groundings

    def __post_init__(self) -> None:
        """The axes of a pattern are as long as all of the relations around it."""
        for rules in self.rules.values():
            for rule in rules:
                for literal in rule.body.literals:
                    if isinstance(literal, nodes.PatternAtom):
                        self._list_around(literal, rule)

    def _list_around(self, literal: nodes.PatternAtom, rule: DeltaRule) -> None:
        for atom in rule.body.positive.values():
            if set(atom.terms) & set(literal.terms) and not self._is_known(atom):
                self.known.relations[atom.relation] = self._derived(atom, [], [])

    def add(self, relation: str, keys: Tensor) -> None:
        self.found.setdefault(relation, []).append(keys)

    def keys(self, relation: str) -> Tensor | None:
        """The relevant atoms of a relation."""
        parts = self.found.get(relation)
        if parts is None:
            return None
        if len(parts) > 1:
            self.found[relation] = parts = [distinct_rows(torch.cat(parts))]
        return distinct_rows(parts[0])

    def follow(self, relation: str) -> None:
        """Join the rules of a relation for its relevant atoms, and add what those read.

        Rule heads that a softmax normalises together are relevant together.
        """
        heads, count = self.keys(relation), -1
        while heads is not None and len(heads) != count:
            count = len(heads)
            for rule in self.rules[relation]:
                bindings = self.join(rule.restricted, rule.wanted, Keys(rule.bound(heads)))
                self.bindings[rule] = _first_of_each(bindings, rule.restricted.visible)
                if not rule.exact:
                    self.add(relation, self.known.keys(rule.rule.head, bindings))
            heads = self.keys(relation)
        for rule in self.rules[relation]:
            bindings = self.bindings.get(rule, Bindings(0))
            for atom in rule.atoms if bindings.count else ():
                if atom.carries_value:
                    self.add(atom.relation, distinct_rows(self.known.keys(atom, bindings)))

    def join(self, body: Body, start: str, keys: Index) -> Bindings:
        """The bindings of a body in which the atom of relation `start` has some keys."""
        budget = Budget(self.known.limit)
        bindings, waiting = Bindings(), list(range(len(body.literals)))
        while waiting:
            at = min(waiting, key=lambda at: self._rank(body, at, start, set(bindings.columns)))
            waiting.remove(at)
            literal, replaced = body.literals[at], None
            grounder = self.known
            if isinstance(literal, nodes.Atom):
                replaced = keys if literal.relation == start else self._matching(literal, bindings)
                if literal.negated:
                    held = grounder.relations | {literal.relation: replaced}
                    grounder = replace(grounder, relations=held, joins={})
            bindings = grounder.extended(body, at, bindings, budget, replaced)
        return bindings

    def _rank(self, body: Body, at: int, start: str, known: set[str]) -> tuple[float, ...]:
        literal = body.literals[at]
        if isinstance(literal, nodes.Atom) and literal.relation == start:
            return (-1,)
        kind, detail = body.cost(at, known)
        if isinstance(literal, nodes.Atom) and not literal.negated and kind == 2:
            bound = [t for t in literal.terms if _is_known(t, known)]
            derived = not self._is_known(literal)
            rows = 0 if derived else self.known.index(literal.relation, len(literal.terms)).rows
            return (kind, -len(bound), rows, at)
        return (kind, detail, at)

    def _is_known(self, atom: nodes.Atom) -> bool:
        return atom.relation in self.known.relations or atom.relation not in self.rules

    def _matching(self, atom: nodes.Atom, bindings: Bindings) -> Index:
        """The atoms of a relation that may agree with bindings."""
        known = set(bindings.columns)
        places = [p for p, t in enumerate(atom.terms) if _is_known(t, known)]
        columns = [self.known.column(atom.terms[p], bindings) for p in places]
        if self._is_known(atom):
            return _reduced(self.known.index(atom.relation, len(atom.terms)), places, columns)
        return self._derived(atom, places, columns)

    def _derived(self, atom: nodes.Atom, places: list[int], columns: list[Tensor]) -> Index:
        """The atoms of a relation that only rules know, by those rules."""
        table = torch.stack(columns, 1) if columns else torch.zeros(1, 0, dtype=torch.int64)
        keys, found = Keys(distinct_rows(table)), []
        for rule in self.rules[atom.relation]:
            terms = tuple(rule.rule.head.terms[p] for p in places)
            wanted = nodes.Atom(rule.wanted, terms, hidden=True)
            body = Body(replace(rule.rule, body=(*rule.rule.body, wanted)), rule.domains)
            bindings = self.join(body, rule.wanted, keys)
            found.append(self.known.keys(rule.rule.head, bindings))
        if atom.relation in self.facts:
            found.append(_reduced(self.facts[atom.relation], places, columns).keys)
        return Keys(distinct_rows(torch.cat(found)))


def _first_of_each(bindings: Bindings, names: Sequence[str]) -> Bindings:
    """One grounding for each assignment of `names`, in key order, with all its variables."""
    if not names:
        return bindings.take(torch.zeros(min(bindings.count, 1), dtype=torch.int64))
    (codes,) = pack([bindings.columns[name] for name in names])
    ordered, order = codes.sort(stable=True)
    return bindings.take(order[run_starts(ordered)])


def _is_known(term: nodes.Term, known: set[str]) -> bool:
    return not isinstance(term, nodes.Variable) or term.name in known


def _reduced(index: Index, places: Sequence[int], columns: Sequence[Tensor]) -> Index:
    """Without rows that agree with no binding: to sort all rows of a relation would take long."""
    if isinstance(index, Grid) or index.rows <= SMALL or not places:
        return index
    return Keys(index.keys[rows_among(index, places, columns)])
