"""Which relations are dense: decided by the program and the kinds of input, never by the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgewise.language import nodes
from edgewise.language.program import Domain
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import variables


def dense_relations(
    rules: Iterable[nodes.Rule], inputs: Iterable[str], domains: Mapping[str, Domain]
) -> set[str]:
    """Relations some rule of which runs over full axes: every head variable is on a dense axis.

    >>> from edgewise.language import R, V
    >>> rules = [R.q(V.I) <= R.x(V.I)[8, 8], R.h(V.I) <= (R.q(V.J), R._edge(V.J, V.I))]
    >>> sorted(dense_relations(rules, ["x"], {}))
    ['q', 'x']
    """
    dense = set(inputs)
    rules = list(rules)
    changed = True
    while changed:
        changed = False
        for rule in rules:
            if rule.head.relation not in dense and _is_dense(rule, dense, domains):
                dense.add(rule.head.relation)
                changed = True
    return dense


def _is_dense(rule: nodes.Rule, dense: set[str], domains: Mapping[str, Domain]) -> bool:
    if not all(isinstance(t, nodes.Variable) for t in rule.head.terms):
        return False
    positive = [a for a in atoms(rule) if isinstance(a, nodes.Atom) and not a.negated]
    ranged = {v.name for a in positive if a.relation in dense for v in variables(a.terms)}
    keyed = {v.name for a in positive for v in variables(a.terms)}
    # a family runs over its whole domain where no atom says which keys there are
    ranged |= {
        v.name
        for weight in weights(rule)
        for v in variables(weight.keys)
        if isinstance(domains.get(v.name), int) and v.name not in keyed
    }
    return all(v.name in ranged for v in variables(rule.head.terms))


def axis_lengths(
    rule: nodes.Rule, sizes: Mapping[str, tuple[int, ...]], domains: Mapping[str, Domain]
) -> tuple[int, ...] | None:
    """The lengths of a dense rule's head axes: lengths intersect, they never broadcast."""
    found = []
    for term in rule.head.terms:
        if not isinstance(term, nodes.Variable):
            return None
        ends = [
            sizes[atom.relation][p]
            for atom in atoms(rule)
            if isinstance(atom, nodes.Atom) and not atom.negated and atom.relation in sizes
            for p, t in enumerate(atom.terms)
            if t == term
        ]
        held = any(term == key for weight in weights(rule) for key in weight.keys)
        domain = domains.get(term.name) if held else None
        if isinstance(domain, int):
            ends.append(domain)
        if not ends:
            return None
        found.append(min(ends))
    return tuple(found)
