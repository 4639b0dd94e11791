"""Variables that join too little: atoms without a common variable, variables that occur once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from edgewise.checks import wording
from edgewise.errors import EdgewiseWarning, nearest
from edgewise.language import Program, nodes, terms
from edgewise.language.functions import AGGREGATION, COMBINATION, kind
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
                yield _unjoined(rule, held, other)


def _unjoined(rule: nodes.Rule, held: list[Any], other: set[str]) -> CartesianProduct:
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


class SingletonVariable(EdgewiseWarning):
    """A variable that occurs once joins nothing: a misspelling, or a value counted repeatedly.

    It is normal in a condition, where it means "some", and in the only atom of a body, where it
    is what the aggregation runs over. A name that begins with `_` says that it is meant.
    """

    code = "singleton-variable"
    example = "Program([R.h(V.X) <= (R.a(V.X), R.e(V.X, V.Y))]).check()"
    instead = "Program([R.h(V.X) <= (R.a(V.Y), R.e(V.X, V.Y))]).check()"


def singleton_variables(
    program: Program, facts: tuple[nodes.Atom, ...]
) -> Iterator[SingletonVariable]:
    for rule in program.rules:
        times = Counter(variable.name for variable in _variables(rule))
        for atom in atoms(rule):
            for variable in terms.variables(atom.terms):
                if times[variable.name] > 1 or variable.name.startswith("_"):
                    continue
                near = _misspelt(variable.name, [name for name in times if name != variable.name])
                joined = any(times[v.name] > 1 for v in terms.variables(atom.terms))
                if near or (joined and _repeats_others(rule, program.aggregation, atom)):
                    yield _single(rule, atom, variable, near)


def _single(
    rule: nodes.Rule, atom: nodes.Expression, variable: nodes.Variable, near: str | None
) -> SingletonVariable:
    name = variable.name
    once = f"`{name}` occurs once in the rule for `{rule.head.relation}`"
    if near:
        return SingletonVariable(once, variable.place or rule.place, f"did you mean `{near}`?")
    relation = wording.name(atom)
    return SingletonVariable(
        f"{once}, so the other atoms are counted again for every `{name}`",
        variable.place or rule.place,
        f"use `{name}` in another atom, or sum over it first, in a rule of its own for "
        f"`{relation}`; if it is meant, call it `_{name}`",
    )


def _variables(rule: nodes.Rule) -> Iterator[nodes.Variable]:
    for atom in (rule.head, *atoms(rule)):
        yield from terms.variables(atom.terms)
    for weight in weights(rule):
        yield from terms.variables(weight.keys)


def _misspelt(name: str, others: list[str]) -> str | None:
    """The name it was probably meant to be; `Atom1` and `Atom2` are two names."""
    close = [o for o in others if o.lower() == name.lower() or o[:-1] != name[:-1]]
    if len(name) < 3:
        close = [o for o in close if o.lower() == name.lower()]
    return nearest(name, close)


def _repeats_others(rule: nodes.Rule, default: nodes.Function, atom: nodes.Expression) -> bool:
    """Whether groundings that differ in one atom only are summed, the other atoms with them."""
    combinations = [f.name for f in rule.functions if kind(f) == COMBINATION]
    aggregations = [f.name for f in rule.functions if kind(f) == AGGREGATION] or [default.name]
    if combinations not in ([], ["sum"]) or aggregations != ["sum_agg"]:
        return False
    items = [item for item in rule.body if item.carries_value]
    return atom in items and any(
        item is not atom and any(terms.variables(a.terms) for a in atoms(item)) for item in items
    )
