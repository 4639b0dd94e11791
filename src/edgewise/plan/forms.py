"""Scores that bend the sum of a query and a key, f(q(I) + k(J)): those of GAT and GATv2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.language import functions, nodes
from edgewise.plan.nodes import Form
from edgewise.plan.score import names_in
from edgewise.reference.evaluate import combination

SLOPES = {"relu": 0.0}  # f(z) = max(z, 0) + slope · min(z, 0)


@dataclass(frozen=True)
class Sums:
    """A form, and the terms that are added up: those with the key's variable, and the others."""

    form: Form
    queries: tuple[nodes.Expression, ...]
    keys: tuple[nodes.Expression, ...]


def sums_of(rule: nodes.Rule, key: str) -> Sums | None:
    """The score of a rule as a bent sum; None if it is none.

    >>> from edgewise.language import F, R, V
    >>> rule = (R.w(V.I, V.J) <= (R.l(V.I), R.r(V.J))) | [F.sum, F.leaky_relu(0.2)]
    >>> sums_of(rule, "J").form.kind
    'additive'
    """
    items = [item for item in rule.body if item.carries_value]
    bends = [f for f in rule.functions if functions.kind(f) == functions.TRANSFORMATION]
    if len(bends) == 1 and combination(rule.functions).name == "sum":
        return _split(bends[0], items, None, key)
    if bends or len(items) != 1:
        return None
    match items[0]:
        case nodes.Apply(function=bend, operands=(inner,), weight=weight):
            return _split(bend, (inner,), weight, key)
    return None


def _split(
    bend: nodes.Function,
    items: Sequence[nodes.Expression],
    vector: nodes.Weight | None,
    key: str,
) -> Sums | None:
    slope = SLOPES.get(bend.name)
    if bend.name == "leaky_relu":
        slope = float(functions.argument(bend, "slope"))
    if slope is None or (vector is not None and key in names_in(vector)):
        return None
    terms = [term for item in items for term in _added(item)]
    keys = tuple(term for term in terms if key in names_in(term))
    queries = tuple(term for term in terms if key not in names_in(term))
    if not keys or not queries:
        return None
    kind = "additive" if vector is None else "of sums"
    return Sums(Form(kind, slope, vector), queries, keys)


def _added(item: nodes.Expression) -> tuple[nodes.Expression, ...]:
    match item:
        case nodes.Apply(function=f, operands=operands, weight=None) if f.name == "sum":
            return tuple(term for operand in operands for term in _added(operand))
    return (item,)
