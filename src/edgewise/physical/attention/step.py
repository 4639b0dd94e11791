"""A fused attention node on dense axes: queries, keys and values straight into a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import causal, full
from edgewise.ground.index import Index
from edgewise.ground.joins.body import SAMPLE
from edgewise.kernels.attention.autocast import in_autocast
from edgewise.kernels.attention.flash import fused
from edgewise.kernels.attention.present_rows import is_relative
from edgewise.kernels.edges import EdgeIndex
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.physical.attention.nodes import additive_output, attend_present, graph_attention
from edgewise.physical.attention.sides import Axes, EdgeSide, FilledScore, Side, side_by_side
from edgewise.physical.lowering_state import Column, State, column
from edgewise.physical.opaque import opaque
from edgewise.physical.result_shapes import broadcast
from edgewise.physical.rule import RuleStep
from edgewise.plan.nodes import Attention
from edgewise.scores import S, Score

CAUSAL, EVERY = causal(), full()


@dataclass(frozen=True, eq=False)
class SortedTokens:
    """The token at each place, (places,) or (heads, places), and the place of each query."""

    query: Tensor
    key: Tensor
    back: Tensor

    def bias(self, bias: Tensor) -> Tensor:
        """(..., n or 1, m or 1)."""
        for axis, order in ((-2, self.query), (-1, self.key)):
            bias = bias if bias.shape[axis] == 1 else bias.index_select(axis, order)
        return bias


def _placed_tokens(data: Tensor, order: Tensor) -> Tensor:
    """(..., heads, tokens, d) with tokens in an order, perhaps one of each head."""
    if order.ndim == 1:
        return data.index_select(-2, order)
    heads, tokens = data.shape[-3], data.shape[-2]
    first = torch.arange(heads, device=order.device)[:, None] * tokens
    flat = data.flatten(-3, -2).index_select(-2, (order + first).flatten())
    return flat.unflatten(-2, (heads, order.shape[1]))


@dataclass(frozen=True, eq=False)
class AttentionStep:
    """Runs one attention node; `index` are the heads that attend to a key: those of the queries
    `attending`, or the rows `attending_rows` of ragged samples, where that is not all of them.

    Ragged `samples` are padded to the longest; `lengths` and `query_lengths` are their numbers of
    keys and queries, where some are padding. `present_keys` and `present_queries` are added to
    scores: 0, or −∞ where a condition on the key or the query alone does not hold.
    """

    node: Attention
    index: Index
    axes: Axes
    queries: tuple[Side, ...]
    keys: tuple[Side, ...]
    scales: tuple[tuple[Side, ...], ...]
    biases: tuple[Side, ...]
    value: Side
    attending: Tensor | None
    attending_rows: Tensor | None
    pattern: Any
    vector: Side | None = None  # of additive attention
    which: EdgeIndex | None = None  # its pairs
    tree: FilledScore | None = None  # the score, if it is more than dot products
    edge_bias: tuple[EdgeSide, ...] = ()
    edge_scale: tuple[EdgeSide, ...] = ()
    samples: int | None = None
    lengths: Tensor | None = None
    order: SortedTokens | None = None  # of what a mask brings together
    choice: tuple[str, ...] = ()  # how that was chosen, and what else was not
    query_lengths: Tensor | None = None
    present_keys: tuple[Side, ...] = ()
    present_queries: tuple[Side, ...] = ()

    @property
    def rule(self) -> nodes.Rule:
        return self.node.replaces[1]

    def rules(self) -> Iterator[RuleStep]:
        sides = [*self.queries, *self.keys, self.value, *self.biases]
        sides += [*self.present_keys, *self.present_queries]
        sides += [] if self.vector is None else [self.vector]
        yield from (side.step for side in sides)
        yield from (side.step for side in (*self.edge_bias, *self.edge_scale))

    def __call__(self, state: State) -> Column:
        if self.which is not None:
            return self._heads(*additive_output(self, state))
        shared, query, key = self.node.shared, self.node.query, self.node.key
        q = self._joined(self.queries, (*shared, query), state, self.scales)
        k = self._joined(self.keys, (*shared, key), state, ())
        v, rank = self.weighed((*shared, key), state)
        if state.cache is not None and self.node.head.relation in state.cache:
            return self._heads(self._cached(state, q, k, v), rank)
        bias = self._bias((*shared, query, key), state)
        there = self._present(key, self.present_keys, self.lengths, state)
        asking = self._present(query, self.present_queries, self.query_lengths, state)
        edge_bias = self._per_edge(self.edge_bias, torch.add, state)
        edge_scale = self._per_edge(self.edge_scale, torch.mul, state)
        dropout = self.node.dropout if state.training else 0.0
        read = (q, k, v, bias, edge_bias, edge_scale, there, asking)
        terms = [t for t in read if t is not None]
        batch = broadcast(*(t.shape[:1] for t in terms))
        q, k, v = (self.spread(t, *batch) for t in (q, k, v))
        if self.present_keys and (self.order is not None or self.has_terms):
            bias = _added(bias, there)
        if self.order is not None:
            out = self.sorted_kernel(self.order, q, k, v, bias, dropout)
            return self._heads(_only(out, asking) if self.present_queries else out, rank)
        if self.has_terms:
            score, graph = self.score(state), EVERY if self.pattern is None else self.pattern
            out = graph_attention(
                q,
                k,
                v,
                graph,
                bias=bias,
                dropout=dropout,
                lengths=self.lengths,
                score=score.node,
                tables=score.tables,
                edge_bias=edge_bias,
                edge_scale=edge_scale,
            )
            return self._heads(_only(out, asking) if self.present_queries else out, rank)
        return self._heads(self.kernel(q, k, v, bias, dropout, there, asking), rank)

    def sorted_kernel(
        self,
        order: SortedTokens,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        dropout: float,
    ) -> Tensor:
        lead = q.shape[1:-2]
        q, k, v = (t.flatten(1, -3) for t in (q, k, v))
        if bias is not None:
            bias = order.bias(bias).expand(-1, *lead, -1, -1).flatten(1, -3)
        q = _placed_tokens(q, order.query)
        k, v = (_placed_tokens(t, order.key) for t in (k, v))
        out = self.kernel(q, k, v, bias, dropout)
        return _placed_tokens(out, order.back).unflatten(1, lead)

    def kernel(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        dropout: float,
        there: Tensor | None = None,
        asking: Tensor | None = None,
    ) -> Tensor:
        lead = q.shape[1:-2]
        if len(lead) > 1:  # kernels take one axis of heads: fast ones no other
            if bias is not None:
                bias = bias.expand(bias.shape[0], *lead, *bias.shape[-2:]).flatten(1, -3)
            q, k, v = (t.flatten(1, -3) for t in (q, k, v))
            return self.kernel(q, k, v, bias, dropout, there, asking).unflatten(1, lead)
        ahead = self.pattern == CAUSAL
        if is_relative(self.pattern) and not (there is None and asking is None):
            if there is None:
                assert asking is not None
                there = asking.new_zeros(1, k.shape[-2])
            return attend_present(q, k, v, there, asking, bias, self.pattern, dropout)
        if self.pattern is None or (ahead and bias is None):  # no graph to plan for: traceable
            return fused(q, k, v, 1.0, causal=ahead, mask=bias, dropout=dropout)
        if self.present_keys:
            bias, there = _added(bias, there), None
        lengths = self.lengths if self.present_keys == () else None
        out = graph_attention(q, k, v, self.pattern, bias=bias, dropout=dropout, lengths=lengths)
        return _only(out, asking) if self.present_queries else out

    def _present(
        self, axis: str, sides: Sequence[Side], lengths: Tensor | None, state: State
    ) -> Tensor | None:
        """(batch, rows of an axis): what conditions on it add to scores."""
        parts = [side(state, (axis,), self.axes) for side in sides]
        if lengths is not None:
            there = torch.arange(self.axes[axis], device=state.device) < lengths[:, None]
            none = torch.zeros(there.shape, dtype=state.dtype, device=state.device)
            parts.append(none.masked_fill(~there, -torch.inf))
        return reduce(torch.add, parts) if parts else None

    def _cached(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """New rows over what is cached; what a query adds to all its scores changes none."""
        order = (*self.node.shared, self.node.query, self.node.key)
        of_keys = tuple(side for side in self.biases if self.node.key in side.names)
        bias = self._bias(order, state, of_keys)
        if self.present_keys:
            bias = _added(bias, self._present(self.node.key, self.present_keys, None, state))
        q = self.spread(q, len(q))
        k, v = (t if self.node.shared else t.unsqueeze(1) for t in (k, v))
        tables = list(self.score(state).tables)
        out = _attend_cached(q, k, v, bias, tables, self, state.cache)
        asking = self._present(self.node.query, self.present_queries, None, state)
        return _only(out, asking) if self.present_queries else out

    def _joined(
        self,
        sides: Sequence[Side],
        order: Sequence[str],
        state: State,
        scales: Sequence[Sequence[Side]],
    ) -> Tensor:
        """The parts of a query (or key) side by side: Σ qₜᵀkₜ is one dot product."""
        parts = []
        for t, side in enumerate(sides):
            data = side(state, order, self.axes)
            data = data.unsqueeze(-1) if data.ndim == 1 + len(order) else data
            for scale in scales[t] if scales else ():
                data = data * scale(state, (), {}).reshape(-1, *(1,) * (data.ndim - 1))
            parts.append(data)
        return side_by_side(parts)

    def weighed(self, order: Sequence[str], state: State) -> tuple[Tensor, tuple[int, ...]]:
        data = self.value(state, order, self.axes)
        shape = tuple(data.shape[1 + len(order) :])
        return data.reshape(*data.shape[: 1 + len(order)], math.prod(shape)), shape

    @property
    def has_terms(self) -> bool:
        """Whether the score is more than dot products and biases."""
        return self.tree is not None or bool(self.edge_bias or self.edge_scale)

    def score(self, state: State) -> Score:
        return S if self.tree is None else self.tree(state)

    def _per_edge(
        self, sides: Sequence[EdgeSide], join: Callable[[Tensor, Tensor], Tensor], state: State
    ) -> Tensor | None:
        """(batch, shared..., edges)."""
        if not sides:
            return None
        total = reduce(join, [side(state, self.node.shared) for side in sides])
        return total if self.node.shared else total.unsqueeze(1)

    def _bias(
        self, order: Sequence[str], state: State, sides: Sequence[Side] | None = None
    ) -> Tensor | None:
        sides = self.biases if sides is None else sides
        if not sides:
            return None
        parts = [side(state, order, self.axes) for side in sides]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total if self.node.shared else total.unsqueeze(1)

    def spread(self, data: Tensor, batch: int) -> Tensor:
        """(batch, shared..., n, d) with every shared axis at its length."""
        shared = [self.axes[n] for n in self.node.shared]
        data = data.expand(self.samples or batch, *shared, *data.shape[-2:])
        return data if shared else data.unsqueeze(1)

    def _heads(self, out: Tensor, shape: tuple[int, ...]) -> Column:
        if self.attending is not None:  # rows of all heads at once, as they lie
            out = out.movedim(-2, 1).index_select(1, self.attending).movedim(1, -2)
        out = out if self.node.shared else out.squeeze(1)
        names = (*self.node.shared, self.node.query)
        order = [1 + names.index(n) for n in head_names(self.node)]
        out = out.permute(0, *order, out.ndim - 1)
        if self.samples is not None:
            out = out.unsqueeze(0)
        out = out.unflatten(-1, shape or (1,)).flatten(1, out.ndim - 2)
        return column(out).take(self.attending_rows)


def head_names(node: Attention) -> list[str]:
    """The variables of the head in their order, but for the sample."""
    return [v.name for v in variables(node.head.terms) if v != SAMPLE]


def _added(bias: Tensor | None, keys: Tensor | None) -> Tensor:
    """A bias (batch, heads, queries, keys) with what conditions add to the scores of keys."""
    assert keys is not None
    more = keys[:, None, None]
    return more if bias is None else bias + more


def _only(out: Tensor, queries: Tensor | None) -> Tensor:
    """0 for queries that are not there."""
    assert queries is not None
    absent = (queries == -torch.inf)[(slice(None), *(None,) * (out.ndim - 3))].unsqueeze(-1)
    return out.masked_fill(absent, 0.0)


@opaque(
    like=lambda q, k, v, *_: torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device="meta")
)
def _attend_cached(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    tables: list[Tensor],
    step: AttentionStep,
    cache: Any,
) -> Tensor:
    found: Tensor = cache.attend(step, *in_autocast(q, k, v), bias, tables)
    return found
