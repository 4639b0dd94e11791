"""A plan as people read it."""

from __future__ import annotations

from edgewise.language import nodes
from edgewise.plan.mask import show_mask
from edgewise.plan.nodes import Additive, Attention, Plan, Step
from edgewise.plan.relational import RelationalAttention, show_relational
from edgewise.scores.nodes import (
    CALL,
    PRODUCT,
    SUM,
    Call,
    Entry,
    Leaf,
    Node,
    Number,
    PairValue,
    S,
    Text,
    walk,
)
from edgewise.scores.nodes import show as show_tree


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
    match step:
        case nodes.Rule():
            return repr(step)
        case RelationalAttention():
            return show_relational(step)
    return _attention(step)


def _attention(node: Attention) -> str:
    parts = [*_score(node), f"value = {node.value!r}"]
    pairs = node.pairs
    if pairs.pattern is not None:
        parts.append(f"pairs = {pairs.pattern!r}")
    if pairs.listed:
        parts.append(f"pairs in {', '.join(map(repr, pairs.listed))}")
    if pairs.mask is not None:
        parts.append(f"mask = {show_mask(pairs.mask)}")
    if where := (*node.score.where, *pairs.rows, *pairs.heads):
        parts.append(f"where {', '.join(map(repr, where))}")
    if node.shared:
        parts.append(f"for each {', '.join(node.shared)}")
    if node.dropout:
        parts.append(f"dropout = {node.dropout}")
    lines = "".join(f"\n    {part}" for part in parts)
    return f"{node.head!r} = attention from {node.query} over {node.key}{lines}"


def _score(node: Attention) -> list[str]:
    """The score with its reads and places in the rule's words; S on a line of its own where it
    occurs twice."""
    tree = node.score.tree
    product, level = _product(node)
    times = sum(part == S for part in walk(tree))

    def names(part: Node) -> Text | None:
        match part:
            case Leaf("s") if times == 1:
                return product, level
            case Leaf("i"):
                return node.query, CALL
            case Leaf("j"):
                return node.key, CALL
            case Entry(number, Number(0) | Call("sub", (Leaf("i"), Leaf("j")))) | PairValue(number):
                return _read(node.score.reads[number])
        return None

    return [f"score = {show_tree(tree, names)}", *([f"S = {product}"] if times > 1 else [])]


def _product(node: Attention) -> Text:
    match node.score.products:
        case Additive(queries, keys, slope, vector):
            inner = f"leaky_relu({' + '.join(map(repr, (*queries, *keys)))}, {slope})"
            return inner if vector is None else f"dot({vector!r}, {inner})", CALL
        case dots:
            terms = [
                " * ".join([*map(repr, dot.scale), f"dot({dot.query!r}, {dot.key!r})"])
                for dot in dots
            ]
            return " + ".join(terms), SUM if len(terms) > 1 else PRODUCT


def _read(item: nodes.Expression) -> Text:
    match item:
        case nodes.Apply(function=nodes.Function("product"), operands=operands, weight=None):
            return " * ".join(map(repr, operands)), PRODUCT
    return repr(item), CALL
