"""The conditions of a score as one mask; derived relations are replaced by what derives them.

`same(I, J) :- speaker(I, S), speaker(J, S)` has a pair for each two tokens of a speaker: as a
relation it would be listed, as a mask it is two columns of keys.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product

from edgewise.graphs.algebra import complement, difference, intersection, transpose, union
from edgewise.graphs.pattern import Pattern
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import atoms, substitute, weights
from edgewise.language.terms import variables
from edgewise.plan.mask import Condition, Conjunction, Disjunction, Mask, Negation
from edgewise.plan.nodes import Plan
from edgewise.plan.score import is_softmax

MOST = 256  # conditions of one mask
MOST_WAYS = 8  # in which none of the rules of a negated atom holds


@dataclass
class Unfolding:
    """Replaces atoms of derived relations by the bodies of their rules."""

    rules: dict[str, list[nodes.Rule]]
    unfolded: set[str] = field(default_factory=set)
    without_facts: set[str] = field(default_factory=set)
    fresh: count[int] = field(default_factory=count)
    size: int = 0

    def replaces(self, item: nodes.Expression) -> bool:
        """Whether a condition is an atom of a derived relation."""
        return isinstance(item, nodes.Atom) and item.relation in self.rules

    def keeping(self, relations: Collection[str]) -> Unfolding:
        """One that leaves the atoms of some relations as they are."""
        return Unfolding({n: rules for n, rules in self.rules.items() if n not in relations})

    def mask(self, conditions: Sequence[nodes.Expression], outer: frozenset[str]) -> Mask:
        """The mask of a body over the variables `outer`."""
        found: list[Condition] = []
        parts: list[Mask] = []
        for item in conditions:
            self._add(item, outer, found, parts)
        for item in [item for item in found if isinstance(item, nodes.Atom) and item.negated]:
            ways = self._negation(item, found) if item in found else None
            if ways is None:
                continue
            self.unfolded.add(item.relation)
            self.without_facts.add(item.relation)
            if len(ways) == 1:
                found = [c for c in found if c is not item]
                for other in ways[0]:
                    self._add(other, outer, found, parts)
                continue
            met = _meeting(item, found, outer)
            found = [c for c in found if c is not item and c not in met]
            parts.append(Disjunction(tuple(self.mask((*met, *way), outer) for way in ways)))
        self.size += len(found)
        return Conjunction(tuple(found), tuple(parts))

    def _add(
        self,
        item: nodes.Expression,
        outer: frozenset[str],
        found: list[Condition],
        parts: list[Mask],
    ) -> None:
        assert isinstance(item, Condition)
        if not isinstance(item, nodes.Atom) or not self.replaces(item) or self.size > MOST:
            found.append(item)
            return
        rules = self.rules[item.relation]
        closed = {v.name for v in variables(item.terms)} <= outer
        if not closed and (len(rules) > 1 or item.negated):
            found.append(item)  # its variables are those of other conditions too
            return
        self.unfolded.add(item.relation)
        bodies = [self._body(rule, item) for rule in rules]
        if not closed:
            self.without_facts.add(item.relation)
            for inner in bodies[0]:
                self._add(inner, outer, found, parts)
            return
        facts = nodes.Atom(item.relation, item.terms, hidden=True)
        part: Mask = Disjunction(tuple(self.mask(body, outer) for body in bodies), facts)
        parts.append(Negation(part) if item.negated else part)

    def _negation(
        self, item: nodes.Atom, known: Sequence[Condition]
    ) -> list[tuple[Condition, ...]] | None:
        """The ways in which no rule of a negated atom holds: of each, one condition that `known`
        does not imply does not. None if such conditions have variables of their own."""
        found = []
        for rule in self.rules.get(item.relation, ()):
            body = self._body(rule, item)
            own = _names(body) - _names([item])
            left = [part for part in _parts_of(body, own) if not _implied(part, known, own)]
            if not left or any(len(part) != 1 or own & _names(part) for part in left):
                return None
            found.append([_opposite(part[0]) for part in left])
        many = math.prod(map(len, found)) > MOST_WAYS
        return list(product(*found)) if found and not many else None

    def _body(self, rule: nodes.Rule, atom: nodes.Atom) -> tuple[Condition, ...]:
        """The conditions of a rule in the place of an atom, with variables of their own."""
        number = next(self.fresh)
        terms: dict[str, nodes.Term] = {}
        equal: list[tuple[nodes.Term, nodes.Term]] = []  # of constants, and of variables read twice
        for own, other in zip(rule.head.terms, atom.terms, strict=True):
            if isinstance(own, nodes.Variable) and own.name not in terms:
                terms[own.name] = other
            else:
                equal.append((terms[own.name] if isinstance(own, nodes.Variable) else own, other))
        items = list(atoms(rule.body))
        for name in {v.name for item in items for v in variables(item.terms)} - terms.keys():
            terms[name] = nodes.Variable(f"{name}@{number}")
        tests = (nodes.SpecialAtom("eq", pair) for pair in equal if pair[0] != pair[1])
        return (*(substitute(_condition(item), terms) for item in items), *tests)


def _condition(item: Condition) -> Condition:
    """An atom of a body without its value: that it holds is what counts."""
    if isinstance(item, nodes.Atom):
        return nodes.Atom(item.relation, item.terms, None, not item.negated, item.negated)
    return item


def _names(items: Iterable[Condition]) -> set[str]:
    return {v.name for item in items for v in variables(item.terms)}


def _meeting(
    item: Condition, known: Sequence[Condition], outer: Collection[str]
) -> list[Condition]:
    """The other conditions that share variables with one, but for those of `outer`."""
    others = [c for c in known if c is not item]
    names, found = _names([item]) - set(outer), list[Condition]()
    while more := [c for c in others if c not in found and _names([c]) & names]:
        found += more
        names |= _names(more) - set(outer)
    return [c for c in others if c in found]


def _parts_of(body: Sequence[Condition], own: Collection[str]) -> list[list[Condition]]:
    """A body as conditions that share no variables of their own."""
    parts: list[list[Condition]] = []
    for item in body:
        meets = [part for part in parts if _names(part) & _names([item]) & set(own)]
        parts = [part for part in parts if part not in meets]
        parts.append([*(c for part in meets for c in part), item])
    return parts


def _implied(part: Sequence[Condition], known: Sequence[Condition], own: Collection[str]) -> bool:
    """Whether conditions hold wherever known ones do: some terms in the place of their `own`
    variables make each of them a known one.

    >>> from edgewise.language import R, V
    >>> known = [R._clock(V.I, V.A), R._clock(V.J, V.B)]
    >>> _implied([R._clock(V.K, V.A)], known, {"K"}), _implied([R._clock(V.K, V.A)], known, ())
    (True, False)
    """
    if not part:
        return True
    first, *others = part
    for item in known:
        terms = _matched(first, item, own)
        if terms is not None and _implied(substitute(tuple(others), terms), known, own):
            return True
    return False


def _matched(
    item: Condition, known: Condition, own: Collection[str]
) -> dict[str, nodes.Term] | None:
    """The terms in the place of variables that make one condition another."""
    if len(item.terms) != len(known.terms):
        return None
    pairs = list(zip(item.terms, known.terms, strict=True))
    terms = {a.name: b for a, b in pairs if isinstance(a, nodes.Variable) and a.name in own}
    return terms if substitute(item, terms) == known else None


def _opposite(item: Condition) -> Condition:
    if isinstance(item, nodes.Atom):
        return nodes.Atom(item.relation, item.terms, None, item.negated, not item.negated)
    return replace(item, negated=not item.negated)


def unfolding(plan: Plan) -> Unfolding:
    """Unfolds what is derived without recursion by rules that bind all variables of their heads."""
    graph = needs(plan.rules)
    recursive = {
        name for part in components(graph) for name in part if any(part & graph[n] for n in part)
    }
    stated = {fact.atom.relation for fact in plan.facts}
    # weights of attention are fused away: what reads them is known by its keys alone
    softmaxes = {r.head.relation for r in plan.rules if is_softmax(r, plan.aggregation)}
    found: dict[str, list[nodes.Rule]] = {}
    for rule in plan.rules:
        found.setdefault(rule.head.relation, []).append(rule)
    return Unfolding(
        {
            name: rules
            for name, rules in found.items()
            if name not in recursive | stated | softmaxes
            and not graph[name] & softmaxes
            and all(map(_unfolds, rules))
        }
    )


def _unfolds(rule: nodes.Rule) -> bool:
    names = [t.name for t in rule.head.terms if isinstance(t, nodes.Variable)]
    items = list(atoms(rule.body))
    bound = {
        v.name
        for a in items
        if isinstance(a, nodes.Atom) and not a.negated
        for v in variables(a.terms)
    }
    return (
        set(names) <= bound
        and not any(isinstance(item, nodes.ValueComparison) for item in rule.body)
        and not any(weight.keys for weight in weights(rule))
        and not any(isinstance(a, nodes.SpecialAtom) and a.carries_value for a in items)
        and all(_keeps_pairs(a.pattern) for a in items if isinstance(a, nodes.PatternAtom))
    )


def _keeps_pairs(pattern: Pattern) -> bool:
    """Whether the pairs of a pattern are the same on the axes of another rule."""
    match pattern:
        case union() | intersection():
            return all(map(_keeps_pairs, pattern.members))
        case difference():
            return _keeps_pairs(pattern.left) and _keeps_pairs(pattern.right)
        case transpose() | complement():
            return _keeps_pairs(pattern.pattern)
    return pattern.ignores_lengths
