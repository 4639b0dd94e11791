"""Rules whose groundings depend on values, written out: comparisons of values, the best of a group.

A *selection* is a relation that holds where its value is not 0. `h <= (a, x(I) > 0.5)` reads the
selection `@h: x(I) > 0.5`, whose rule computes 1 or 0 for each `I`; no gradient passes through it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edgewise.errors import EdgewiseError
from edgewise.language import nodes, operators
from edgewise.language.statements import SCORES, SELECTION, assigned_variables, has_own_weight
from edgewise.language.text_form import printer

BEST = ("argmin_agg", "argmax_agg")


class NoGroup(EdgewiseError):
    """`argmin_agg` and `argmax_agg` leave one rule head of each group: `agg_terms` are the keys
    that it is chosen among."""

    code = "no-group"
    example = "Program([(R.best(V.X) <= R.a(V.X, V.Y)) | [F.argmax_agg]]).check()"
    instead = (
        "Program([(R.best(V.X, V.Y) <= R.a(V.X, V.Y)) | [F.argmax_agg(agg_terms=[V.Y])]]).check()"
    )


def expand(statements: Iterable[nodes.Statement]) -> tuple[nodes.Statement, ...]:
    """The statements with selections as relations of their own."""
    found: list[nodes.Statement] = []
    for statement in statements:
        if isinstance(statement, nodes.Rule):
            statement = _without_best(statement, found)
            statement = _without_comparisons(statement, found)
        found.append(statement)
    return tuple(found)


def _without_comparisons(rule: nodes.Rule, found: list[nodes.Statement]) -> nodes.Rule:
    body: list[nodes.Expression] = []
    for item in rule.body:
        if isinstance(item, nodes.ValueComparison):
            head = _selection(rule, item, found)
            item = replace(head, hidden=not item.negated, negated=item.negated, place=item.place)
        body.append(item)
    return replace(rule, body=tuple(body)) if tuple(body) != rule.body else rule


def _selection(
    rule: nodes.Rule, item: nodes.ValueComparison, found: list[nodes.Statement]
) -> nodes.Atom:
    """The rule head of a comparison, whose rule is added to those found."""
    shown = printer.expression(replace(item, negated=False), printer.Style(exact=False))
    name = f"{SELECTION}{rule.head.relation}: {shown}"
    value = operators.compared_values(item)
    made = nodes.Rule(nodes.Atom(name, (), place=item.place), (value,), (), item.place)
    variables = tuple(nodes.Variable(v, item.place) for v in assigned_variables(made))
    terms: tuple[nodes.Term, ...] = variables or (0,)  # an input has keys
    number = 1
    while True:
        unique = name if number == 1 else f"{name} #{number}"
        head = nodes.Atom(unique, terms, place=item.place)
        made = nodes.Rule(head, (value,), (), item.place)
        taken = any(isinstance(s, nodes.Rule) and s.head.relation == unique for s in found)
        if not taken:
            found.append(made)
            return head
        if made in found and not has_own_weight(made):
            return head
        number += 1


def _without_best(rule: nodes.Rule, found: list[nodes.Statement]) -> nodes.Rule:
    """`h <= body | [argmin_agg(Y)]` as all values of the body, and those of the best keys."""
    chosen = [f for f in rule.functions if f.name in BEST]
    if not chosen:
        return rule
    over = dict(chosen[0].arguments).get("agg_terms")
    variables = [t.name for t in rule.head.terms if isinstance(t, nodes.Variable)]
    if not over or set(over) - set(variables):
        unknown = sorted(set(over or ()) - set(variables))
        raise NoGroup(
            f"`F.{chosen[0].name}` needs `agg_terms`"
            if not unknown
            else f"`{unknown[0]}` of `agg_terms` is not a variable of the rule head",
            chosen[0].place or rule.place,
            f"name variables of the rule head: `F.{chosen[0].name}(agg_terms=[V.Y])`",
        )
    name = rule.head.relation
    number = sum(isinstance(s, nodes.Rule) and s.head.relation == name for s in found)
    part = f" {number + 1}" if number else ""
    every = nodes.Atom(f"{SCORES}{name}: all{part}", rule.head.terms, place=rule.place)
    best = replace(every, relation=f"{SELECTION}{name}: best{part}")
    rest = tuple(f for f in rule.functions if f.name not in BEST)
    inner = _without_comparisons(nodes.Rule(every, rule.body, rest, rule.place), found)
    found.append(inner)
    found.append(nodes.Rule(best, (every,), (chosen[0],), rule.place))
    return nodes.Rule(rule.head, (every, replace(best, hidden=True)), (), rule.place)
