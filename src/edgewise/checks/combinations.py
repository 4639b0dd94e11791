"""Combinations that are probably not intended: a sum that adds 1, a combination of one value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edgewise.checks import wording
from edgewise.errors import EdgewiseWarning
from edgewise.functions import Law
from edgewise.language import Program, nodes, terms
from edgewise.language.functions import AGGREGATION, COMBINATION, definition, kind
from edgewise.language.statements import atoms


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


class IdleCombination(EdgewiseWarning):
    """`F.max` combines the atoms of a body, `F.max_agg` the groundings of a rule head."""

    code = "idle-combination"
    example = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max]]).check()"
    instead = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max_agg]]).check()"


def idle_combinations(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[IdleCombination]:
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
