"""Atoms that share no variable are paired each with each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgewise.checks import wording
from edgewise.errors import EdgewiseWarning
from edgewise.language import Program, nodes, terms
from edgewise.language.statements import atoms, weights


class CartesianProduct(EdgewiseWarning):
    """Atoms that share no variable are paired each with each, which is rarely meant.

    If the rule head holds the variables of both sides, as in dense attention, no warning is given.
    """

    code = "cartesian-product"
    example = "Program([R.h(V.X) <= (R.a(V.X), R.b(V.Y))]).check()"
    instead = "Program([R.h(V.X) <= (R.a(V.X), R.b(V.Y), R._e(V.X, V.Y))]).check()"


def cartesian_products(
    program: Program, facts: tuple[nodes.Atom, ...]
) -> Iterator[CartesianProduct]:
    for rule in program.rules:
        parts = connected(rule)
        if len(parts) < 2:
            continue
        head = {v.name for v in terms.variables(rule.head.terms)}
        for part in [part for part in parts if not part & head][: len(parts) - 1]:
            other = next(p for p in (*[p for p in parts if p & head], *parts) if p is not part)
            held = [a for a in atoms(rule) if part & {v.name for v in terms.variables(a.terms)}]
            if held:  # otherwise a family alone ranges over it, and its domain is declared
                yield _warning(rule, held, other)


def _warning(rule: nodes.Rule, held: list[Any], other: set[str]) -> CartesianProduct:
    atom = next((a for a in held if a.carries_value), held[0])
    name, partner = terms.variables(atom.terms)[0].name, min(other)
    if atom.carries_value:
        what = f"pairs every `{name}` with every `{partner}`: no atom holds both"
    else:
        what = f"tests `{wording.name(atom)}`, which shares no variable with the rest of it"
    return CartesianProduct(
        f"the rule for `{rule.head.relation}` {what}",
        atom.place or rule.place,
        "add an atom that joins them, such as "
        f"`{wording.condition(rule.place, 'edge', partner, name)}`",
    )


def connected(rule: nodes.Rule) -> list[set[str]]:
    """The variables of a body; those that an atom or a weight family holds together in one set."""
    groups = [{v.name for v in terms.variables(atom.terms)} for atom in atoms(rule)]
    for item in _items(rule.body):
        keys = {v.name for weight in weights(item.weight) for v in terms.variables(weight.keys)}
        held = {v.name for atom in atoms(item) for v in terms.variables(atom.terms)}
        groups.append(keys | held if keys else keys)
    parts: list[set[str]] = []
    for group in filter(None, groups):
        joined = [part for part in parts if part & group]
        parts = [part for part in parts if not part & group] + [group.union(*joined)]
    return parts


def _items(items: tuple[nodes.Expression, ...]) -> Iterator[nodes.Expression]:
    for item in items:
        yield item
        if isinstance(item, nodes.Apply):
            yield from _items(item.operands)
