"""A rule written into another that uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.statements import atoms, combination, substitute
from edgewise.language.terms import variables

Domains = Sequence[tuple[str, Any]]  # of variables, by name


def keeps_domains(user: nodes.Rule, helper: nodes.Rule, domains: Domains) -> bool:
    """Whether variables of a helper range over the same in its place: a domain goes by a name.

    One that has a domain must not become one with another variable, whose atoms may bind it.
    """
    moved = _moved(user, helper, _place(user, helper))
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


def inlined_into(user: nodes.Rule, helper: nodes.Rule) -> nodes.Rule:
    """The rule with the body of a helper in the place of the one atom that reads it."""
    place = _place(user, helper)
    moved = _moved(user, helper, place)
    items = substitute(helper.body, moved)
    values = tuple(item for item in items if item.carries_value)
    conditions = tuple(item for item in items if not item.carries_value and item not in user.body)
    value: Any = nodes.Apply(combination(helper.functions), values)
    alone = len(values) == 1 and Law.KEEPS_ONE in functions.definition(value.function)
    if alone and helper.head.weight is None:
        (value,) = values
    for function in helper.functions:
        if functions.kind(function) == functions.TRANSFORMATION:
            value = nodes.Apply(function, (value,))
    if helper.head.weight is not None:
        value = replace(value, weight=substitute(helper.head.weight, moved))
    if place.weight is not None:  # a weight on the use comes outside the helper's own
        value = nodes.Apply(nodes.Function("identity"), (value,), place.weight)
    body = tuple(_replaced(item, place, value) for item in user.body)
    return replace(user, body=(*body, *conditions))


def _place(user: nodes.Rule, helper: nodes.Rule) -> nodes.Atom:
    """The atom that reads the helper."""
    read = (a for a in atoms(user.body) if isinstance(a, nodes.Atom))
    return next(a for a in read if a.relation == helper.head.relation)


def _moved(user: nodes.Rule, helper: nodes.Rule, place: nodes.Atom) -> dict[str, nodes.Term]:
    """What the variables of the helper become: the terms of the atom, or names of their own."""
    names = {v.name for a in (user.head, *atoms(user.body)) for v in variables(a.terms)}
    bound = dict(zip((v.name for v in variables(helper.head.terms)), place.terms, strict=True))
    fresh = {
        v.name: nodes.Variable(f"{v.name}_{helper.head.relation}")
        for a in atoms(helper.body)
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
