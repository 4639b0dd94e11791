"""A plan as people read it."""

from __future__ import annotations

from edgewise.language import nodes
from edgewise.plan.code import DOT
from edgewise.plan.nodes import Attention, Plan, Step


def show(plan: Plan) -> str:
    """Every step, fact and line of a plan, one after another.

    >>> from edgewise.language import R, V, Program
    >>> from edgewise.plan.lower import lower
    >>> print(show(lower(Program([R.h(V.X) <= R.a(V.X)[2.0], R.g <= R.h(V.X)]), R.h)))
    R.h(V.X) <= R.a(V.X)["h.a": 2.0]
    """
    return "\n".join(statements(plan))


def statements(plan: Plan) -> list[str]:
    """The text of every step, fact and line."""
    return [show_step(s) for s in plan.steps] + [repr(s) for s in (*plan.facts, *plan.lines)]


def show_step(step: Step) -> str:
    """A rule as it is written, an attention as its parts."""
    return repr(step) if isinstance(step, nodes.Rule) else _attention(step)


def _attention(node: Attention) -> str:
    parts = [f"score = {' + '.join(_score(node))}", f"value = {node.value!r}"]
    if node.pattern is not None:
        parts.append(f"pairs = {node.pattern!r}")
    if node.edges:
        parts.append(f"pairs in {', '.join(map(repr, node.edges))}")
    if node.distances or node.rows:
        parts.append(f"where {', '.join(map(repr, (*node.distances, *node.rows)))}")
    if node.shared:
        parts.append(f"for each {', '.join(node.shared)}")
    if node.dropout:
        parts.append(f"dropout = {node.dropout}")
    lines = "".join(f"\n    {part}" for part in parts)
    return f"{node.head!r} = attention from {node.query} over {node.key}{lines}"


def _score(node: Attention) -> list[str]:
    if node.form is not None:
        added = " + ".join(map(repr, (*node.queries, *node.keys)))
        bent = f"leaky_relu({added}, {node.form.slope})"
        return [bent if node.form.vector is None else f"dot({node.form.vector!r}, {bent})"]
    parts = zip(node.scales, node.queries, node.keys, strict=True)
    terms = [_times((*scale, f"dot({q!r}, {k!r})")) for scale, q, k in parts]
    if node.factors:
        dots = " + ".join(terms)
        terms = [_times((*node.factors, f"({dots})" if len(terms) > 1 else dots))]
    if node.code is not None:
        dots = " + ".join(terms)
        terms = [repr(node.code).replace(repr(DOT), f"({dots})" if len(terms) > 1 else dots)]
    return terms + [_times(factors) for factors in node.biases]


def _times(factors: tuple[nodes.Expression | str, ...]) -> str:
    return " · ".join(f if isinstance(f, str) else repr(f) for f in factors)
