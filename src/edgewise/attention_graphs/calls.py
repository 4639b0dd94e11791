"""One recorded call of attention: queries, keys and what changes scores, never n×m weights.

Weights are recomputed in blocks of query rows: p_ij = exp(s_ij - lse_i), for the keys of each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs import full, per_head
from edgewise.graphs.pattern import Pattern
from edgewise.layouts.rows import csr_of_rows
from edgewise.scores.evaluate import PairScores
from edgewise.scores.nodes import H, Node, Number, S, replaced

NUMBERS = 1 << 22  # of a block: heads × rows × keys


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Weights (heads, rows, width) of queries first, first + 1, ...; `keys` (rows or 1, width) are
    the keys, in increasing order. Places without a key weigh 0."""

    first: int
    keys: Tensor
    weights: Tensor

    @property
    def queries(self) -> Tensor:
        """The places of its rows."""
        return torch.arange(self.first, self.first + self.weights.shape[1])

    def product(self, left: Tensor) -> tuple[Tensor, Tensor]:
        """left (b, rows) times the mean weights of heads: keys (w,), and numbers (b, w)."""
        mean = self.weights.mean(0).to(left.dtype)
        if len(self.keys) == 1:
            return self.keys[0], left @ mean
        return self.keys.flatten(), (left[:, :, None] * mean).flatten(1)


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """The attention of one layer for one sample: q (heads, n, d), k (heads, m, d).

    s_ij = score(scale · edge_scale_ij · q_i·k_j) + bias_ij + edge_bias_ij for (i, j) ∈ graph.
    `bias` broadcasts to (heads, n, m), edge terms are (heads, e). `sinks` (heads,) are scores
    beside those of the keys. `query_order` and `key_order` are the tokens at each place, where
    tokens were sorted: (places,) or (heads, places). `rule` and `plan` are what the call is in the
    program, as text.
    """

    name: str
    q: Tensor
    k: Tensor
    graph: Pattern | per_head
    scale: float = 1.0
    bias: Tensor | None = None
    score: Node = S
    tables: tuple[Tensor, ...] = ()
    edge_bias: Tensor | None = None
    edge_scale: Tensor | None = None
    sinks: Tensor | None = None
    query_order: Tensor | None = None
    key_order: Tensor | None = None
    rule: str = ""
    plan: str = ""

    @property
    def heads(self) -> int:
        return len(self.q)

    @property
    def n(self) -> int:
        return self.q.shape[1]

    @property
    def m(self) -> int:
        return self.k.shape[1]

    def pattern(self, head: int) -> Pattern:
        """The pairs that one head computes; of sorted tokens, by place."""
        return tuple(self.graph)[head] if isinstance(self.graph, per_head) else self.graph

    def pairs(self) -> int:
        """How many pairs all heads compute."""
        if isinstance(self.graph, per_head):
            return sum(one.count(self.n, self.m) for one in self.graph)
        return self.heads * self.graph.count(self.n, self.m)

    def query_tokens(self, block: RowBlock) -> Tensor:
        """The tokens of the queries of a block."""
        places = block.queries
        return places if self.query_order is None else self.query_order[places]

    def take(self, head: int) -> AttentionCall:
        """One head alone."""

        def own(x: Tensor | None) -> Tensor | None:
            return x if x is None or len(x) == 1 else x[head : head + 1]

        def order(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.ndim == 1 else x[head]

        return replace(
            self,
            q=self.q[head : head + 1],
            k=self.k[head : head + 1],
            graph=self.pattern(head),
            bias=own(self.bias),
            tables=tuple(t[head % len(t)][None] for t in self.tables),
            score=replaced(self.score, {H: Number(head)}),
            edge_bias=own(self.edge_bias),
            edge_scale=own(self.edge_scale),
            sinks=own(self.sinks),
            query_order=order(self.query_order),
            key_order=order(self.key_order),
        )

    @property
    def is_uniform(self) -> bool:
        """Whether all heads compute the same pairs, of tokens in the same order."""
        orders = (self.query_order, self.key_order)
        return isinstance(self.graph, Pattern) and all(x is None or x.ndim == 1 for x in orders)

    def parts(self) -> Iterator[tuple[int, AttentionCall]]:
        """Calls of heads with the same pairs: one for all, or one for each, with its first head."""
        if self.is_uniform:
            yield 0, self
        else:
            yield from ((head, self.take(head)) for head in range(self.heads))

    @cached_property
    def _degrees(self) -> Tensor:
        assert isinstance(self.graph, Pattern)
        return self.graph.degrees(self.n, self.m)

    @cached_property
    def _edge_ptr(self) -> Tensor:
        return torch.cat([torch.zeros(1, dtype=torch.long), self._degrees.long().cumsum(0)])

    def blocks(self) -> Iterator[RowBlock]:
        """All rows, in blocks that fit into memory; of heads with the same pairs."""
        most = NUMBERS // max(self.heads, self.q.shape[2] // 4, 1)
        for first, last in row_spans(self._degrees, most):
            yield self.block(first, last)

    def block(self, first: int, last: int) -> RowBlock:
        """The weights of queries first ≤ i < last."""
        keys, there, edge = self._keys(first, last)
        scores = self._scores(first, last, keys, edge)
        if there is not None:
            scores = scores.masked_fill(~there, -torch.inf)
        lse = torch.logsumexp(scores, -1, keepdim=True)
        if self.sinks is not None:
            lse = torch.logaddexp(lse, self.sinks.to(lse)[:, None, None])
        lse = torch.where(lse == -torch.inf, 0, lse)  # a row without keys
        weights = torch.exp(scores - lse)
        if self.key_order is not None:
            keys = self.key_order[keys]
        return RowBlock(first, keys, weights)

    def _keys(self, first: int, last: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Keys (rows or 1, width), which are there, and the number of each pair in the graph."""
        assert isinstance(self.graph, Pattern)
        degrees = self._degrees[first:last].long()
        width = int(degrees.max()) if len(degrees) else 0
        per_edge = self.edge_bias is not None or self.edge_scale is not None
        if width and bool((degrees == self.m).all()) and not per_edge:
            return torch.arange(self.m)[None], None, None
        csr = csr_of_rows(self.graph.rows_between(self.n, self.m, first, last))
        place = torch.arange(width)
        there = place < degrees[:, None]
        keys = torch.zeros(last - first, width, dtype=torch.long)
        keys[there] = csr.index.long()
        edge = (self._edge_ptr[first:last, None] + place).where(there, 0) if per_edge else None
        return keys, there, edge

    def _scores(self, first: int, last: int, keys: Tensor, edge: Tensor | None) -> Tensor:
        q, k = self.q[:, first:last].float(), self.k.float()
        if self.q.dtype == torch.float64:
            q, k = self.q[:, first:last], self.k
        if 4 * keys.shape[1] >= self.m:
            dot = q @ k.mT
            if keys.shape != (1, self.m):
                dot = dot.gather(2, keys.expand(len(q), -1, -1))
        else:
            dot = torch.stack([(a[:, None] @ b[keys].mT)[:, 0] for a, b in zip(q, k, strict=True)])
        dot = dot * self.scale
        if edge is not None and self.edge_scale is not None:
            dot = dot * self.edge_scale[:, edge]
        if self.score != S:
            i = torch.arange(first, last)[:, None]
            h = torch.arange(len(q)).view(-1, 1, 1)
            found = PairScores(dot, i, keys, h, self.tables)[self.score]
            dot = found.expand(dot.shape)
        if self.bias is not None:
            dot = dot + self._bias(first, last, keys)
        if edge is not None and self.edge_bias is not None:
            dot = dot + self.edge_bias[:, edge]
        return dot

    def _bias(self, first: int, last: int, keys: Tensor) -> Tensor:
        assert self.bias is not None
        bias = self.bias if self.bias.shape[1] == 1 else self.bias[:, first:last]
        if bias.shape[2] == 1 or keys.shape == (1, self.m):
            return bias
        shape = (len(bias), *keys.shape)
        return bias.expand(-1, len(keys), -1).gather(2, keys.expand(shape))


def row_spans(degrees: Tensor, most: int) -> Iterator[tuple[int, int]]:
    """Spans of rows whose number times their largest degree is at most `most`, or of one row.

    >>> list(row_spans(torch.tensor([2, 2, 8, 2]), 8))
    [(0, 2), (2, 3), (3, 4)]
    """
    first, widest = 0, 0
    for row, degree in enumerate(np.asarray(degrees).tolist()):
        wider = max(widest, degree)
        if row > first and (row + 1 - first) * wider > most:
            yield first, row
            first, wider = row, degree
        widest = wider
    if len(degrees):
        yield first, len(degrees)


def call_of_weights(name: str, weights: Tensor) -> AttentionCall:
    """Weights (heads, n, m) that are known already, as scores log w."""
    heads, n, m = weights.shape
    weights = weights.double()  # exp(log w) is w again in float32
    q, k = weights.new_zeros(heads, n, 1), weights.new_zeros(heads, m, 1)
    return AttentionCall(name, q, k, full(), bias=weights.log())
