"""A rule written into another that uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewise.language import functions, nodes
from edgewise.language.statements import atoms
from edgewise.language.substitution import substitute
from edgewise.language.terms import variables
from edgewise.reference.evaluate import combination

OF_ONE_ITSELF = ("sum", "product", "elproduct", "avg", "max", "min")


def inlined_into(user: nodes.Rule, helper: nodes.Rule) -> nodes.Rule:
    """The rule with the body of a helper in the place of the one atom that reads it."""
    place = next(
        a
        for a in atoms(user.body)
        if isinstance(a, nodes.Atom) and a.relation == helper.head.relation
    )
    names = {v.name for a in (user.head, *atoms(user.body)) for v in variables(a.terms)}
    bound = dict(zip((v.name for v in variables(helper.head.terms)), place.terms, strict=True))
    fresh = {
        v.name: nodes.Variable(f"{v.name}_{helper.head.relation}")
        for a in atoms(helper.body)
        for v in variables(a.terms)
        if v.name not in bound and v.name in names
    }
    items = substitute(helper.body, fresh | bound)
    values = tuple(item for item in items if item.carries_value)
    conditions = tuple(item for item in items if not item.carries_value and item not in user.body)
    value: Any = nodes.Apply(combination(helper.functions), values)
    if len(values) == 1 and helper.head.weight is None and value.function.name in OF_ONE_ITSELF:
        (value,) = values
    for function in helper.functions:
        if functions.kind(function) == functions.TRANSFORMATION:
            value = nodes.Apply(function, (value,))
    if helper.head.weight is not None:
        value = replace(value, weight=helper.head.weight)
    if place.weight is not None:  # a weight on the use comes outside the helper's own
        value = nodes.Apply(nodes.Function("identity"), (value,), place.weight)
    body = tuple(_replaced(item, place, value) for item in user.body)
    return replace(user, body=(*body, *conditions))


def _replaced(item: Any, place: nodes.Atom, value: Any) -> Any:
    if item is place:
        return value
    if isinstance(item, nodes.Apply):
        return replace(item, operands=tuple(_replaced(o, place, value) for o in item.operands))
    return item
