"""An atom without a value has value 1, and a sum adds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edgewise.checks import wording
from edgewise.errors import EdgewiseWarning
from edgewise.functions import Law
from edgewise.language import Program, nodes
from edgewise.language.functions import COMBINATION, definition, kind


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


def added_ones(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[CountsAsOne]:
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


def unvalued(program: Program, facts: tuple[nodes.Atom, ...]) -> set[str]:
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
