"""Attention along edges with vectors: from a node of the plan to a step on grounded data.

Nothing has to be dense: edges are the keys of a relation, and queries and keys the rows that they
name. Weights of edges are applied to rows and to sums, never edge by edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from operator import add
from typing import Any

import torch
from torch import Tensor

from edgewise.ground.index import Index
from edgewise.kernels.attention.autocast import in_autocast
from edgewise.kernels.edges import EdgeIndex, relational_attention
from edgewise.kernels.edges.registry import EdgeOperation, note_choice
from edgewise.language import nodes
from edgewise.physical.attention.sides import side_by_side
from edgewise.physical.lowering_state import Column, State, column
from edgewise.physical.opaque import opaque
from edgewise.physical.rule import RuleStep
from edgewise.plan.relational import EdgeDot, RelationalAttention

Expression = nodes.Expression


@dataclass(frozen=True, eq=False)
class HeadRows:
    """An expression as (batch, rows, heads, features), heads one where it is the same in all.

    `rows` (rows, heads) are the places of its values; `order` says that they are all, "rows" first
    or "heads" first.
    """

    step: RuleStep
    rows: Tensor
    order: str | None

    def __call__(self, state: State) -> Tensor:
        data = self.step(state).data
        data = data.reshape(*data.shape[:2], -1)
        count, heads = self.rows.shape
        if self.order == "heads":
            return data.unflatten(1, (heads, count)).transpose(1, 2)
        if self.order is None:
            data = data.index_select(1, self.rows.flatten())
        return data.unflatten(1, (count, heads))


def head_rows(step: RuleStep, rows: Tensor) -> HeadRows:
    """The values at `rows` (rows, heads), as a view where these are all."""
    every = torch.arange(step.ground.heads.rows)
    order = "heads" if torch.equal(rows.T.flatten(), every) else None
    return HeadRows(step, rows, "rows" if torch.equal(rows.flatten(), every) else order)


@dataclass(frozen=True, eq=False)
class RelationalStep:
    """Runs one node: `index` are the atoms that it derives, `which` the edges.

    `sides` are expressions as rows of queries, keys or edges, `weights` those of edges; `places`
    is the order of rule heads among (query, head), None if it is that, `heads_first` if it is the
    other.
    """

    node: RelationalAttention
    index: Index
    which: EdgeIndex
    heads: int
    sides: dict[Expression, HeadRows]
    weights: dict[nodes.Weight, HeadRows]
    shape: tuple[int, ...]  # of one value
    places: Tensor | None
    heads_first: bool

    @property
    def rule(self) -> nodes.Rule:
        return self.node.replaces[1]

    def rules(self) -> Iterator[RuleStep]:
        yield from (side.step for side in (*self.sides.values(), *self.weights.values()))

    def __call__(self, state: State) -> Column:
        call, node = _Evaluation(self, state), self.node
        edges = [call(item) for item in node.edges]
        ends = [0, *accumulate(x.shape[-1] for x in edges)]
        place = {item: slice(*pair) for item, pair in zip(node.edges, pairwise(ends), strict=True)}
        read = (
            [call.scaled(dot.query, dot.scale) for dot in node.dots],
            [call(dot.key) for dot in node.dots],
            [reduce(add, map(call, node.values))] if node.values else [],
            edges,
            call.met(node.by_query, place),
            call.met(node.by_key, place),
        )
        bias = reduce(add, map(call, node.biases)) if node.biases else None
        sums, vectors = call.attend(*read, bias)
        found = [sums] if node.values else []
        for one in node.edge_values:
            found.append(call.weighed(vectors[..., place[one.edge]], one.weight))
        return self._column(reduce(add, found))

    def _column(self, out: Tensor) -> Column:
        """(batch, queries, heads, features) in the order of rule heads."""
        out = (out.transpose(1, 2) if self.heads_first else out).flatten(1, 2)
        out = out if self.places is None else out.index_select(1, self.places)
        return column(out.unflatten(-1, self.shape or (1,)))


@dataclass
class _Evaluation:
    """One run of a step: expressions are computed once."""

    step: RelationalStep
    state: State

    def __post_init__(self) -> None:
        self.known: dict[Any, Tensor] = {}

    def __call__(self, item: Expression) -> Tensor:
        if item not in self.known:
            self.known[item] = self.step.sides[item](self.state)
        return self.known[item]

    def scaled(self, item: Expression, scale: tuple[Expression, ...]) -> Tensor:
        key = (item, scale)
        if key not in self.known:
            self.known[key] = reduce(lambda x, s: x * self(s), scale, self(item))
        return self.known[key]

    def matrix(self, weight: nodes.Weight) -> Tensor:
        """(1, heads, features, features of the edge), or (1, heads, 1, 1) of a number."""
        if weight not in self.known:
            side = self.step.weights[weight]
            data = side.step(self.state).data
            data = data if side.order else data.index_select(1, side.rows[0])
            self.known[weight] = data.reshape(*data.shape[:2], *(*data.shape[2:], 1, 1)[:2])
        return self.known[weight]

    def met(self, dots: Sequence[EdgeDot], place: Mapping[Any, slice]) -> list[Tensor]:
        """Σ scale · Wᵀ row, at the features of each edge's vector."""
        parts: dict[Expression, list[Tensor]] = {}
        for dot in dots:
            row, weight = self.scaled(dot.row, dot.scale), dot.vector.weight
            if weight is not None:
                row = _times(row, self.matrix(weight).mT)
            parts.setdefault(dot.vector.edge, []).append(row)
        if not parts:
            return []
        none = {item: at.stop - at.start for item, at in place.items() if item not in parts}
        zeros = {item: [self(item).new_zeros(1, 1, 1, size)] for item, size in none.items()}
        return [reduce(add, (parts | zeros)[item]) for item in place]

    def weighed(self, summed: Tensor, weight: nodes.Weight | None) -> Tensor:
        return summed if weight is None else _times(summed, self.matrix(weight))

    def attend(
        self,
        q: Sequence[Tensor],
        k: Sequence[Tensor],
        v: Sequence[Tensor],
        x: Sequence[Tensor],
        a: Sequence[Tensor],
        b: Sequence[Tensor],
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The sums of values and of vectors: (batch, queries, heads, features)."""
        which, heads, node = self.step.which, self.step.heads, self.step.node
        n, m = which.rows.segments, which.columns.segments
        batch = max(len(t) for t in (*q, *k, *v, *x, *([] if bias is None else [bias])))

        def rows(parts: Sequence[Tensor], count: int) -> Tensor:
            if not parts:
                return x[0].new_empty(batch, count, heads, 0)
            joined = side_by_side(parts)
            return joined.expand(batch, count, heads, joined.shape[-1])

        vectors = side_by_side(x)
        read = (rows(q, n), rows(k, m), rows(v, m), vectors.expand(batch, *vectors.shape[1:]))
        met = (rows(a, n) if a else None, rows(b, m) if b else None)
        bias = None if bias is None else bias[..., 0].expand(batch, which.edges, heads)
        dropout = node.dropout if self.state.training else 0.0
        width, like = max(t.shape[-1] for t in read), read[2]
        note_choice(EdgeOperation("relational_attention", width, like.dtype, like.device.type))
        out = _along(*read, *met, bias, which, bool(node.edge_values), dropout)
        size = heads * like.shape[-1]
        parts = out.split([size, out.shape[-1] - size], -1)
        sums, found = (p.unflatten(-1, (heads, p.shape[-1] // heads)) for p in parts)
        return sums, found


def _times(rows: Tensor, matrix: Tensor) -> Tensor:
    """matrix · row of (batch, rows, heads, features), a matrix (1, heads, m, features)."""
    if matrix.shape[-2:] == (1, 1) and rows.shape[-1] != 1:
        return rows * matrix[:, None, :, :, 0]
    return torch.matmul(rows.transpose(1, 2), matrix.mT).transpose(1, 2)


def _attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    x: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    bias: Tensor | None,
    which: EdgeIndex,
    values: bool,
    dropout: float,
) -> Tensor:
    """(batch, queries, heads · features), the sums of values first."""
    q, k, v, x = in_autocast(q, k, v, x)
    a, b, bias = (None if t is None else t.to(q.dtype) for t in (a, b, bias))
    more = {"a": a, "b": b, "bias": bias, "values": values, "dropout": dropout}
    return relational_attention(q, k, v, x, which, **more)  # type: ignore[arg-type]


def _like(q: Tensor, k: Tensor, v: Tensor, x: Tensor, *rest: Any) -> Tensor:
    width = v.shape[-1] + x.shape[-1] * rest[4]
    return torch.empty(*q.shape[:2], q.shape[2] * width, dtype=v.dtype, device="meta")


ATTEND_ALONG_EDGES = _attended  # what nodes call
_along: Callable[..., Tensor] = opaque(like=_like, operators=_attended)(_attended)
