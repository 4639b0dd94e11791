"""Inlining: the body of a rule in the place of the atom that reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import applied_functions, atoms, combination, substitute
from edgewise.language.terms import variables
from edgewise.plan.nodes import Plan

Domains = Sequence[tuple[str, Any]]  # of variables, by name


def derived_by_one_rule(plan: Plan) -> set[str]:
    """The relations that are nothing but one rule: no fact, line, recursion or output."""
    heads = Counter(rule.head.relation for rule in plan.rules)
    more = {*plan.wanted, *(line.relation for line in plan.lines)}
    more |= {fact.atom.relation for fact in plan.facts}
    more |= {name for part in components(needs(plan.rules)) if len(part) > 1 for name in part}
    return {name for name, count in heads.items() if count == 1} - more


def keeps_domains(caller: nodes.Rule, callee: nodes.Rule, domains: Domains) -> bool:
    """Whether variables of a callee range over the same in its place: a domain goes by a name.

    One that has a domain must not become one with another variable, whose atoms may bind it.
    """
    moved = _moved(caller, callee, _place(caller, callee))
    terms = list(moved.values())
    apart = all(terms.count(moved[name]) == 1 for name, _ in domains if name in moved)
    return apart and same_domains(moved, domains)


def same_domains(moved: Mapping[str, nodes.Term], domains: Domains) -> bool:
    """Whether every variable that has a domain becomes one that has the same."""
    held = dict(domains)
    return all(
        isinstance(term, nodes.Variable) and held.get(term.name) == held[name]
        for name, term in moved.items()
        if name in held
    )


def reads_all_rows(rule: nodes.Rule) -> bool:
    """Whether training draws a number for each of its rows, or computes statistics of them."""
    inside = (functions.definition(f) for f in applied_functions(rule.body))
    listed = (functions.definition(f) for f in rule.functions)
    return any(f.trains for f in listed) or any(Law.BATCH in f for f in inside)


def inlined_into(caller: nodes.Rule, callee: nodes.Rule) -> nodes.Rule:
    """The rule with the body of a callee in the place of the one atom that reads it."""
    place = _place(caller, callee)
    moved = _moved(caller, callee, place)
    items = substitute(callee.body, moved)
    values = tuple(item for item in items if item.carries_value)
    conditions = tuple(item for item in items if not item.carries_value and item not in caller.body)
    value: Any = nodes.Apply(combination(callee.functions), values)
    alone = len(values) == 1 and Law.KEEPS_ONE in functions.definition(value.function)
    if alone and callee.head.weight is None:
        (value,) = values
    for function in callee.functions:
        if functions.kind(function) == functions.TRANSFORMATION:
            value = nodes.Apply(function, (value,))
    if callee.head.weight is not None:
        value = replace(value, weight=substitute(callee.head.weight, moved))
    if place.weight is not None:  # a weight on the use comes outside the callee's own
        value = nodes.Apply(nodes.Function("identity"), (value,), place.weight)
    body = tuple(_replaced(item, place, value) for item in caller.body)
    return replace(caller, body=(*body, *conditions))


def _place(caller: nodes.Rule, callee: nodes.Rule) -> nodes.Atom:
    """The atom that reads the callee."""
    read = (a for a in atoms(caller.body) if isinstance(a, nodes.Atom))
    return next(a for a in read if a.relation == callee.head.relation)


def _moved(caller: nodes.Rule, callee: nodes.Rule, place: nodes.Atom) -> dict[str, nodes.Term]:
    """What the variables of the callee become: the terms of the atom, or names of their own."""
    names = {v.name for a in (caller.head, *atoms(caller.body)) for v in variables(a.terms)}
    bound = dict(zip((v.name for v in variables(callee.head.terms)), place.terms, strict=True))
    fresh = {
        v.name: nodes.Variable(f"{v.name}_{callee.head.relation}")
        for a in atoms(callee.body)
        for v in variables(a.terms)
        if v.name not in bound and v.name in names
    }
    return fresh | bound


def _replaced(item: Any, place: nodes.Atom, value: Any) -> Any:
    if item is place:
        return value
    if isinstance(item, nodes.Apply):
        return replace(item, operands=tuple(_replaced(o, place, value) for o in item.operands))
    return item
