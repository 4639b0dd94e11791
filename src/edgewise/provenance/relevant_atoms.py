"""The atoms that one atom follows from, top-down: each rule is joined for the rule heads that are
needed (magic sets), so that the time follows what is found, not all groundings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from edgewise.ground.body import Body
from edgewise.ground.index import Grid, Index, Keys, distinct_rows, pack, run_starts
from edgewise.ground.join import Bindings, Budget
from edgewise.ground.magic_sets import SMALL, rows_among
from edgewise.ground.rules import Grounder
from edgewise.language import nodes
from edgewise.update.delta import DeltaRule


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
