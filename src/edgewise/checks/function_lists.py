"""The list after a rule: one combination, transformations, one aggregation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgewise.checks import wording
from edgewise.errors import EdgewiseError, Place, nearest
from edgewise.functions import Law
from edgewise.language import Program, nodes, terms
from edgewise.language.functions import (
    AGGREGATION,
    COMBINATION,
    DEFINITIONS,
    BadFunction,
    argument,
    kind,
)


class TwoCombinations(EdgewiseError):
    """A body is combined once; of two combinations one would do nothing."""

    code = "two-combinations"
    example = "Program([(R.h(V.X) <= (R.a(V.X), R.b(V.X))) | [F.product, F.max]]).check()"
    instead = "Program([(R.h(V.X) <= (R.a(V.X), R.b(V.X))) | [F.product]]).check()"


class TwoAggregations(EdgewiseError):
    """The groundings of a rule head are aggregated once; of two aggregations one would be idle."""

    code = "two-aggregations"
    example = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max_agg, F.sum_agg]]).check()"
    instead = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max_agg]]).check()"


class BadAggTerms(EdgewiseError):
    """`agg_terms` are the variables of the rule head that a softmax runs over."""

    code = "bad-agg-terms"
    example = """\
Program([
    (R.w(V.I) <= (R.q(V.I), R.k(V.J))) | [F.product, F.softmax_agg(agg_terms=[V.J])],
]).check()"""
    instead = """\
Program([
    (R.w(V.I, V.J) <= (R.q(V.I), R.k(V.J))) | [F.product, F.softmax_agg(agg_terms=[V.J])],
]).check()"""


class BadAverages(EdgewiseError):
    """`batch_norm` moves the averages that it reads, so they are fixed weights of their own."""

    code = "bad-averages"
    example = "Program([R.y(V.I) <= F.batch_norm(R.x(V.I), R.mean, R.variance)]).check()"
    instead = """\
averages = W.mean[8,].filled(0.0).fixed(), W.variance[8,].filled(1.0).fixed()
Program([R.y(V.I) <= F.batch_norm(R.x(V.I), *averages)]).check()"""


def bad_lists(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[EdgewiseError]:
    for rule in program.rules:
        yield from _two(rule.functions, rule.place)
        yield from _agg_terms(rule)
        yield from _averages(rule)
    for line in program.lines:
        yield from _two(line.functions, line.place)
        yield from _aggregation_in_line(line)


def _averages(rule: nodes.Rule) -> Iterator[EdgewiseError]:
    """Functions of statistics read weights that are fixed and not a family."""
    listed = [(f, rule.body) for f in rule.functions]
    for function, operands in (*listed, *_applied(rule.body)):
        if Law.BATCH not in DEFINITIONS[function.name]:
            continue
        for item in operands[1:]:
            own = isinstance(item, nodes.Weight) and not item.keys
            if not own or (item.is_declared and not item.is_fixed):
                yield BadAverages(
                    f"`{function.name}` reads its averages from `{item!r}`, not a fixed weight",
                    function.place or rule.place,
                    "write `W.mean[8,].filled(0.0).fixed()` and a variance of ones",
                )


def _applied(items: tuple[nodes.Expression, ...]) -> Iterator[tuple[nodes.Function, Any]]:
    for item in items:
        if isinstance(item, nodes.Apply):
            yield item.function, item.operands
            yield from _applied(item.operands)


def _two(functions: tuple[nodes.Function, ...], place: Place | None) -> Iterator[EdgewiseError]:
    for which, error in ((COMBINATION, TwoCombinations), (AGGREGATION, TwoAggregations)):
        found = [function for function in functions if kind(function) == which]
        for extra in found[1:]:
            yield error(
                f"`{found[0].name}` and `{extra.name}` are both {which}s",
                extra.place or place,
                _separate(found[0].name, extra.name, which),
            )


def _separate(first: str, second: str, which: str) -> str:
    meant = DEFINITIONS[second].counterpart
    if which == COMBINATION and meant is not None:
        return f"did you mean the aggregation `{meant}`? Otherwise keep one of them"
    return f"keep one, or put `{first}` into a rule of its own"


def _agg_terms(rule: nodes.Rule) -> Iterator[EdgewiseError]:
    head = [variable.name for variable in terms.variables(rule.head.terms)]
    for function in rule.functions:
        if Law.NORMALISES not in DEFINITIONS[function.name]:
            continue
        names = argument(function, "agg_terms")
        if names == ():
            yield BadAggTerms(
                f"`{function.name}` has an empty list of terms",
                function.place or rule.place,
                f"name variables of the rule head, or leave `agg_terms` out{_of(head)}",
            )
        for name in dict.fromkeys(names or ()):
            if name not in head:
                near = nearest(name, head)
                yield BadAggTerms(
                    f"`{function.name}` runs over `{name}`, not a variable of the rule head "
                    f"`{rule.head.relation}`",
                    function.place or rule.place,
                    f"did you mean `{near}`?"
                    if near
                    else f"add `{name}` to the rule head{_of(head)}",
                )


def _of(head: list[str]) -> str:
    return f"; it has `{'`, `'.join(head)}`" if head else ""


def _aggregation_in_line(line: nodes.Line) -> Iterator[EdgewiseError]:
    for function in line.functions:
        if kind(function) != AGGREGATION:
            continue
        combination = DEFINITIONS[function.name].word
        yield BadFunction(
            f"`{function.name}` aggregates the groundings of one rule; the line of "
            f"`{line.relation}` combines the rules",
            function.place or line.place,
            f"write `{wording.function(line.place, combination)}` here, or put "
            f"`{wording.function(line.place, function.name)}` after a rule"
            if combination in DEFINITIONS
            else f"put `{wording.function(line.place, function.name)}` after a rule",
        )
