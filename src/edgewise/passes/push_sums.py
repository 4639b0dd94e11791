"""Take a sum before a join where it distributes over it.

Σ_Y Σ_Z e(X, Y) · e(Y, Z) · a(Z)  =  Σ_Y e(X, Y) · (Σ_Z e(Y, Z) · a(Z))
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from edgewise.language import functions, nodes
from edgewise.language.statements import aggregation_of, atoms, combination, weights
from edgewise.language.terms import variables
from edgewise.plan.nodes import Plan
from edgewise.plan.score import names_in

SUM, PRODUCT = nodes.Function("sum_agg"), nodes.Function("product")


def push_sums(plan: Plan) -> Plan:
    steps: list = []
    taken = {rule.head.relation for rule in plan.rules}
    for step in plan.steps:
        waiting = [step]
        while waiting:
            rule = waiting.pop()
            split = _split(plan, rule, taken) if isinstance(rule, nodes.Rule) else None
            if split is None:
                steps.append(rule)
            else:
                partial, rest = split
                taken.add(partial.head.relation)
                waiting += [rest, partial]  # the partial may split again, and comes first
    return replace(plan, steps=tuple(steps))


def _split(plan: Plan, rule: nodes.Rule, taken: set[str]) -> tuple[nodes.Rule, nodes.Rule] | None:
    """A partial that sums one variable away, and the rule that uses it."""
    if not _sums_products(plan, rule):
        return None
    values = [item for item in rule.body if item.carries_value]
    conditions = [item for item in rule.body if not item.carries_value]
    heads = {v.name for v in variables(rule.head.terms)}
    found = []
    for name in sorted(set().union(*map(names_in, values)) - heads):
        inside = [n for n, item in enumerate(values) if name in names_in(item)]
        contiguous = all(b == a + 1 for a, b in pairwise(inside))
        if len(inside) < len(values) and contiguous:
            pushed = _pushed(rule, values, conditions, set(inside), taken)
            found += [] if pushed is None else [pushed]
    # the partial with the fewest variables stores the least
    return min(found, key=lambda pair: len(pair[0].head.terms), default=None)


def _sums_products(plan: Plan, rule: nodes.Rule) -> bool:
    return (
        aggregation_of(rule, plan.aggregation).name == "sum_agg"
        and combination(rule.functions).name == "product"
        and all(functions.kind(f) != functions.TRANSFORMATION for f in rule.functions)
        and sum(item.carries_value for item in rule.body) > 1
    )


def _pushed(
    rule: nodes.Rule,
    values: list[nodes.Expression],
    conditions: list[nodes.Expression],
    inside: set[int],
    taken: set[str],
) -> tuple[nodes.Rule, nodes.Rule] | None:
    part = [item for n, item in enumerate(values) if n in inside]
    others = [item for n, item in enumerate(values) if n not in inside]
    own = set().union(*map(names_in, part))
    elsewhere = {v.name for v in variables(rule.head.terms)}.union(*map(names_in, others))
    gone = own - elsewhere
    moved = [c for c in conditions if names_in(c) & gone]
    stay = [c for c in conditions if not names_in(c) & gone]
    # a condition that ties what is summed away to the rest, or to an existential, is not split
    if not gone or any(not names_in(c) <= own for c in moved):
        return None
    if not own <= _bound((*part, *moved)):  # a number that is computed binds nothing
        return None
    # a family refuses keys outside its domain in groundings of the rule: a partial has others
    if {v.name for w in weights(tuple(part)) for v in variables(w.keys)} & _held(rule.body):
        return None
    shared = sorted(own & elsewhere)
    if not shared and not others:
        return None
    head = nodes.Atom(_fresh(rule, taken), tuple(nodes.Variable(n) for n in shared))
    partial = nodes.Rule(head, (*part, *moved), (PRODUCT, SUM), rule.place)
    first = min(inside)
    body = [item for n, item in enumerate(values) if n < first]
    body += [head, *(item for n, item in enumerate(values) if n > first and n not in inside)]
    return partial, replace(rule, body=(*body, *stay))


def _bound(body: tuple[nodes.Expression, ...]) -> set[str]:
    """The variables that atoms bind, or the keys of weights."""
    return _held(body) | {v.name for w in weights(body) for v in variables(w.keys)}


def _held(body: tuple[nodes.Expression, ...]) -> set[str]:
    """The variables that atoms bind."""
    held = [a for a in atoms(body) if isinstance(a, nodes.Atom) and not a.negated]
    return {v.name for atom in held for v in variables(atom.terms)}


def _fresh(rule: nodes.Rule, taken: set[str]) -> str:
    number = 1
    while (name := f"{rule.head.relation}.part{number}") in taken:
        number += 1
    return name
