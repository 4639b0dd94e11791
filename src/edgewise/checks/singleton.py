"""A variable that occurs once joins nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from edgewise.checks import wording
from edgewise.errors import EdgewiseWarning, nearest
from edgewise.language import Program, nodes, terms
from edgewise.language.functions import AGGREGATION, COMBINATION, kind
from edgewise.language.statements import atoms, weights


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
                    yield _warning(rule, atom, variable, near)


def _warning(
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
