"""Warnings about programs that are valid but probably not intended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from edgewise.checks import wording
from edgewise.errors import EdgewiseWarning, Place, nearest, suggest
from edgewise.functions import Law
from edgewise.language import Program, nodes, terms
from edgewise.language.functions import AGGREGATION, COMBINATION, definition, kind
from edgewise.language.statements import atoms, weights

Facts = tuple[nodes.Atom, ...]


class CartesianProduct(EdgewiseWarning):
    """Atoms that share no variable form a Cartesian product, which is rarely intended.

    If the rule head holds the variables of both sides, as in dense attention, no warning is given.
    """

    code = "cartesian-product"
    example = "Program([R.h(V.X) <= (R.a(V.X), R.b(V.Y))]).check()"
    instead = "Program([R.h(V.X) <= (R.a(V.X), R.b(V.Y), R._e(V.X, V.Y))]).check()"


def cartesian_products(program: Program, facts: Facts) -> Iterator[CartesianProduct]:
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


def singleton_variables(program: Program, facts: Facts) -> Iterator[SingletonVariable]:
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


class CountsAsOne(EdgewiseWarning):
    """An atom without a value has value 1, and a sum adds it to the others."""

    code = "counts-as-one"
    example = """\
Program([
    R.h(V.X) <= (R.a(V.Y), R.e(V.X, V.Y)),
]).check([R.a(1)[2.0], R.e(0, 1)])"""
    instead = """\
Program([
    R.h(V.X) <= (R.a(V.Y), R._e(V.X, V.Y)),
]).check([R.a(1)[2.0], R.e(0, 1)])"""


def added_ones(program: Program, facts: Facts) -> Iterator[CountsAsOne]:
    ones = unvalued(program, facts)
    for rule in program.rules:
        for operands in _sums(rule):
            plain = [item for item in operands if isinstance(item, nodes.Atom)]
            plain = [item for item in plain if item.weight is None and item.relation in ones]
            for item in plain if len(plain) < len(operands) else ():
                yield CountsAsOne(
                    f"`{item.relation}` has no values, so it adds 1 to the sum in the rule for "
                    f"`{rule.head.relation}`",
                    item.place or rule.place,
                    f"make it a condition: `{wording.hidden_form(item)}`; "
                    "or give it a weight if the 1 is meant",
                )


def _sums(rule: nodes.Rule) -> Iterator[list[nodes.Expression]]:
    """The operands of every sum in a rule."""
    chosen = [f for f in rule.functions if kind(f) == COMBINATION]
    if all(Law.LINEAR in definition(f) for f in chosen):
        yield [item for item in rule.body if item.carries_value]
    yield from _inner(rule.body)


def _inner(items: Iterable[nodes.Expression]) -> Iterator[list[nodes.Expression]]:
    for item in items:
        if isinstance(item, nodes.Apply):
            if kind(item.function) == COMBINATION and Law.LINEAR in definition(item.function):
                yield list(item.operands)
            yield from _inner(item.operands)


def unvalued(program: Program, facts: Facts) -> set[str]:
    """Relations whose facts have no values, or whose rules only test conditions."""
    plain: dict[str, bool] = {}
    for atom in (*(fact.atom for fact in program.facts), *facts):
        plain[atom.relation] = plain.get(atom.relation, True) and atom.weight is None
    for rule in program.rules:
        one = rule.head.weight is None and not rule.functions
        tests = one and not any(item.carries_value for item in rule.body)
        # two rules of conditions may both derive an atom, which is then 2
        plain[rule.head.relation] = tests and rule.head.relation not in plain
    for line in program.lines:
        plain[line.relation] = False
    return {relation for relation, is_one in plain.items() if is_one}


class IdleCombination(EdgewiseWarning):
    """`F.max` combines the atoms of a body, `F.max_agg` the groundings of a rule head."""

    code = "idle-combination"
    example = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max]]).check()"
    instead = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max_agg]]).check()"


def idle_combinations(program: Program, facts: Facts) -> Iterator[IdleCombination]:
    for rule in program.rules:
        values = [item for item in rule.body if item.carries_value]
        aggregated = any(kind(function) == AGGREGATION for function in rule.functions)
        if len(values) != 1 or aggregated or not _has_groundings(rule):
            continue
        for function in rule.functions:
            found = definition(function)
            meant = found.counterpart
            idle = meant is not None and Law.KEEPS_ONE in found
            if meant is not None and idle and meant != program.aggregation.name:
                place = function.place or rule.place
                yield IdleCombination(
                    f"`{wording.function(place, function.name)}` combines one value, and the "
                    f"groundings are aggregated by "
                    f"`{wording.function(place, program.aggregation.name)}`",
                    place,
                    f"did you mean `{wording.function(place, meant)}`?",
                )


def _has_groundings(rule: nodes.Rule) -> bool:
    """True if a rule head can have more than one."""
    head = {v.name for v in terms.variables(rule.head.terms)}
    carrying = (atom for atom in atoms(rule) if atom.carries_value)
    return any(v.name not in head for atom in carrying for v in terms.variables(atom.terms))


class UnknownRelation(EdgewiseWarning):
    """A relation with neither facts nor rules never holds, so its rule derives nothing."""

    code = "unknown-relation"
    example = "Program([R.h(V.X) <= R.node(V.X)]).check([R.nodes(1)[1.0]])"
    instead = "Program([R.h(V.X) <= R.nodes(V.X)]).check([R.nodes(1)[1.0]])"


class UnusedRelation(EdgewiseWarning):
    """Facts that no rule reads change nothing."""

    code = "unused-relation"
    example = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0], R.label(1)[2.0]])"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0]])"


def unknown_relations(program: Program, facts: Facts) -> Iterator[UnknownRelation]:
    for name, (atom, near) in _missing(program, facts).items():
        if near or not atom.negated:
            yield UnknownRelation(
                f"`{name}` has no facts and no rules, so it never holds",
                atom.place,
                f"did you mean `{near}`?"
                if near
                else f"give facts for it, such as `{_example(atom)}`",
            )
    heads = {rule.head.relation for rule in program.rules}
    for line in program.lines:
        if line.relation not in heads and program.rules:
            yield UnknownRelation(
                f"the line of `{line.relation}` applies to no rule",
                line.place,
                suggest(line.relation, sorted(heads), "remove it, or write a rule for it"),
            )


def _example(atom: nodes.Atom) -> str:
    return repr(nodes.Atom(atom.relation, (1,) * len(atom.terms)))


def _missing(program: Program, facts: Facts) -> dict[str, tuple[nodes.Atom, str | None]]:
    """The relations that are read but not defined, each with the name it may have meant."""
    if not facts:
        return {}
    known = {rule.head.relation for rule in program.rules} | set(_stated(program, facts))
    read = [a for rule in program.rules for a in atoms(rule) if isinstance(a, nodes.Atom)]
    missing = {atom.relation: atom for atom in reversed(read) if atom.relation not in known}
    return {name: (missing[name], nearest(name, sorted(known))) for name in reversed(missing)}


TYPE = ":"  # ends the relation of a type, `woman:Y` in a text, of which constants may have many


def unused_relations(program: Program, facts: Facts) -> Iterator[UnusedRelation]:
    if not program.rules:
        return
    read = {a.relation for r in program.rules for a in atoms(r) if isinstance(a, nodes.Atom)}
    heads = {rule.head.relation for rule in program.rules}
    meant = {near for _, near in _missing(program, facts).values()}
    for name, place in _stated(program, facts).items():
        if name not in read | heads | meant and not name.endswith(TYPE):
            yield UnusedRelation(
                f"no rule reads `{name}`",
                place,
                suggest(name, sorted(read), "leave its facts out, or write a rule"),
            )


def _stated(program: Program, facts: Facts) -> dict[str, Place | None]:
    stated: dict[str, Place | None] = {}
    for atom in (*(fact.atom for fact in program.facts), *facts):
        stated.setdefault(atom.relation, atom.place)
    return stated


class LearnableConstant(EdgewiseWarning):
    """A fact of the program is a weight: training changes it, unless it is fixed."""

    code = "learnable-constant"
    example = "Program([R.d_k[0.125], (R.h(V.X) <= (R.d_k, R.a(V.X))) | [F.product]]).check()"
    instead = (
        "Program([R.d_k[0.125].fixed(), (R.h(V.X) <= (R.d_k, R.a(V.X))) | [F.product]]).check()"
    )


def learnable_constants(program: Program, facts: Facts) -> Iterator[LearnableConstant]:
    """Of facts without terms that scale: a broken number is computed, not an initial value."""
    for fact in program.facts:
        weight = fact.atom.weight
        if fact.atom.terms or weight is None or weight.name or weight.is_fixed:
            continue
        if isinstance(weight.value, float) and not weight.value.is_integer():
            shown = repr(fact.atom) if wording.is_python(fact.place) else fact.atom.relation
            fixed = f"{shown}.fixed()" if wording.is_python(fact.place) else f"<{weight.value}>"
            yield LearnableConstant(
                f"training changes the value of `{fact.atom.relation}`",
                fact.place,
                f"if it is a constant, write `{fixed}`; if it is a weight, name it",
            )


LETTER = re.compile("[A-Z][0-9]?")  # what variables are usually called


class LikelyVariable(EdgewiseWarning):
    """A string is a constant; a variable is written `V.I`."""

    code = "likely-variable"
    example = 'Program([R.h(V.I) <= (R.a(V.I), R.b("I"))]).check()'
    instead = "Program([R.h(V.I) <= (R.a(V.I), R.b(V.I))]).check()"


def likely_variables(program: Program, facts: Facts) -> Iterator[LikelyVariable]:
    keys = {key for atom in facts for key in atom.terms}
    keys |= {key for fact in program.facts for key in fact.atom.terms}
    for rule in program.rules:
        names = {variable.name for variable in _variables(rule)}
        letters = {t for t in rule.head.terms if isinstance(t, str) and LETTER.fullmatch(t)}
        letters &= {term for atom in atoms(rule) for term in atom.terms if isinstance(term, str)}
        for atom in (rule.head, *atoms(rule)):
            for term in atom.terms:
                if isinstance(term, str) and term in names | letters and term not in keys:
                    also = f", and `{term}` a variable of the rule" if term in names else ""
                    yield LikelyVariable(
                        f"`{term!r}` is a constant{also}",
                        atom.place or rule.place,
                        f"did you mean `V.{term}`?",
                    )
