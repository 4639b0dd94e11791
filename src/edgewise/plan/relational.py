"""Attention along edges that have vectors of their own, as one node of the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgewise.language import nodes

if TYPE_CHECKING:  # which has a union with the node below
    from edgewise.plan.nodes import Dot


@dataclass(frozen=True)
class EdgeVector:
    """W · edge(I, J): the weight, which may be one of each head, is applied to sums over edges."""

    edge: nodes.Expression
    weight: nodes.Weight | None = None


@dataclass(frozen=True)
class EdgeDot:
    """scale · row ᵀ (W · edge(I, J)), where `row` is of the query, or of the key."""

    row: nodes.Expression
    vector: EdgeVector
    scale: tuple[nodes.Expression, ...] = ()


@dataclass(frozen=True)
class RelationalAttention:
    """`head(I) = Σ_J softmax_J(score(I, J)) · value(I, J)` along edges (I, J) with vectors.

    The score is the sum of the dot products of queries and keys (`dots`), of queries and edges
    (`by_query`), of keys and edges (`by_key`), and of numbers of the pair (`biases`). A value is
    the sum of `values` of the key and `edge_values`. Pairs are those for which all of these have
    values, and that the `listed` relations hold for.
    """

    head: nodes.Atom
    query: str
    key: str
    shared: tuple[str, ...]
    dots: tuple[Dot, ...]
    by_query: tuple[EdgeDot, ...]
    by_key: tuple[EdgeDot, ...]
    biases: tuple[nodes.Expression, ...]
    values: tuple[nodes.Expression, ...]
    edge_values: tuple[EdgeVector, ...]
    listed: tuple[nodes.Atom, ...]
    dropout: float
    replaces: tuple[nodes.Rule, nodes.Rule]

    @property
    def of_queries(self) -> tuple[nodes.Expression, ...]:
        """What has a value for each query."""
        return (*(dot.query for dot in self.dots), *(dot.row for dot in self.by_query))

    @property
    def of_keys(self) -> tuple[nodes.Expression, ...]:
        """What has a value for each key."""
        of_dots = (*(dot.key for dot in self.dots), *(dot.row for dot in self.by_key))
        return (*of_dots, *self.values)

    @property
    def of_edges(self) -> tuple[nodes.Expression, ...]:
        """What is read edge by edge."""
        return (*self.edges, *self.biases)

    @property
    def edges(self) -> tuple[nodes.Expression, ...]:
        """The different vectors of edges."""
        of_dots = [dot.vector for dot in (*self.by_query, *self.by_key)]
        return tuple(dict.fromkeys(v.edge for v in (*of_dots, *self.edge_values)))


def rewrite_relational(
    node: RelationalAttention, rewritten: Callable[[Any], Any]
) -> RelationalAttention:
    """The node with every expression rewritten."""

    def vector(one: EdgeVector) -> EdgeVector:
        return EdgeVector(rewritten(one.edge), rewritten(one.weight))

    def edge_dot(one: EdgeDot) -> EdgeDot:
        return EdgeDot(rewritten(one.row), vector(one.vector), rewritten(one.scale))

    return replace(
        node,
        head=rewritten(node.head),
        dots=tuple(
            replace(
                dot,
                query=rewritten(dot.query),
                key=rewritten(dot.key),
                scale=rewritten(dot.scale),
            )
            for dot in node.dots
        ),
        by_query=tuple(map(edge_dot, node.by_query)),
        by_key=tuple(map(edge_dot, node.by_key)),
        biases=rewritten(node.biases),
        values=rewritten(node.values),
        edge_values=tuple(map(vector, node.edge_values)),
        listed=rewritten(node.listed),
    )


def show_relational(node: RelationalAttention) -> str:
    """Its parts, one on each line."""
    dots = [(dot.scale, repr(dot.query), repr(dot.key)) for dot in node.dots]
    dots += [(d.scale, repr(d.row), _vector(d.vector)) for d in (*node.by_query, *node.by_key)]
    score = [" * ".join([*map(repr, scale), f"dot({a}, {b})"]) for scale, a, b in dots]
    score += map(repr, node.biases)
    parts = [f"score = {' + '.join(score)}"]
    parts.append(
        f"value = {' + '.join([*map(repr, node.values), *map(_vector, node.edge_values)])}"
    )
    if node.listed:
        parts.append(f"pairs in {', '.join(map(repr, node.listed))}")
    if node.shared:
        parts.append(f"for each {', '.join(node.shared)}")
    if node.dropout:
        parts.append(f"dropout = {node.dropout}")
    lines = "".join(f"\n    {part}" for part in parts)
    return f"{node.head!r} = attention from {node.query} over {node.key} along edges{lines}"


def _vector(one: EdgeVector) -> str:
    return repr(one.edge) if one.weight is None else f"{one.weight!r} · {one.edge!r}"
