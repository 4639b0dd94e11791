"""Attention weights as pairs: what `output_attentions=True` returns, never n×n."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs import from_edges, per_head, per_sample
from edgewise.graphs.checks import check_memory
from edgewise.graphs.pattern import Pattern
from edgewise.hf.eviction import Graph
from edgewise.hf.graph_attention import (
    ScoreOptions,
    allowed_after_cache,
    call_attention,
    depends_on_length,
    key_positions,
    sink_share,
    without_unfilled_cache,
)
from edgewise.hf.masks import ModelMask
from edgewise.kernels.attention.calls.split import check_family
from edgewise.pruning.errors import NoSuchHead


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """Attention of a layer: `weights[b, h, e]` is that of query `queries[e]` to key `keys[e]`.

    Pairs are sorted; a pair that a row or head of the batch does not have weighs 0. `shape` is
    (batch, heads, n, m), that of `to_dense()`. Weights are those before dropout.

    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> from edgewise import hf
    >>> from edgewise.graphs import window
    >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> model = BertModel(BertConfig(vocab_size=9, intermediate_size=8, **sizes)).eval()
    >>> _ = hf.use(model, window(1))
    >>> found = model(torch.tensor([[1, 2, 3, 4]]), output_attentions=True).attentions[0]
    >>> keys, weights = found.row(0)
    >>> keys.tolist(), tuple(weights.shape), tuple(found.to_dense().shape)
    ([0, 1], (1, 2, 2), (1, 2, 4, 4))
    """

    queries: Tensor
    keys: Tensor
    weights: Tensor
    shape: tuple[int, int, int, int]

    def to_dense(self) -> Tensor:
        """(batch, heads, n, m), as transformers' own attention returns it.

        >>> import torch
        >>> pair, weights = torch.tensor([0, 1]), torch.ones(1, 1, 2)
        >>> AttentionWeights(pair, pair, weights, (1, 1, 2, 2)).to_dense().tolist()
        [[[[1.0, 0.0], [0.0, 1.0]]]]
        """
        batch, heads, n, m = self.shape
        check_memory(batch * heads * n * m, f"weights of {n:,}×{m:,} pairs")
        out = self.weights.new_zeros(batch, heads, n * m)
        at = self.queries * m + self.keys
        return out.index_copy(-1, at, self.weights).unflatten(-1, (n, m))

    def row(self, query: int) -> tuple[Tensor, Tensor]:
        """The keys of one query, and their weights (batch, heads, keys).

        >>> import torch
        >>> pair, weights = torch.tensor([0, 1]), torch.ones(1, 1, 2)
        >>> AttentionWeights(pair, pair, weights, (1, 1, 2, 2)).row(1)
        (tensor([1]), tensor([[[1.]]]))
        """
        queries = self.shape[2]
        if isinstance(query, bool) or not isinstance(query, int) or not -queries <= query < queries:
            raise NoSuchHead(
                f"there is no query {query!r:.40}: the weights are of {queries:,} queries",
                caller(),
                f"queries count from 0 to {queries - 1}" if queries else "it is empty",
            )
        query %= queries
        first, last = torch.searchsorted(self.queries, torch.tensor([query, query + 1])).tolist()
        return self.keys[first:last], self.weights[..., first:last]

    def detach(self) -> AttentionWeights:
        """Without its graph of gradients."""
        return AttentionWeights(self.queries, self.keys, self.weights.detach(), self.shape)

    def to(self, device: torch.device | str) -> AttentionWeights:
        """On another device."""
        queries, keys = self.queries.to(device), self.keys.to(device)
        return AttentionWeights(queries, keys, self.weights.to(device), self.shape)

    def __repr__(self) -> str:
        b, h, n, m = self.shape
        return f"AttentionWeights({len(self.keys):,} pairs of {n:,}×{m:,}, {b} samples, {h} heads)"


def attend_with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | per_sample,
    mask: ModelMask,
    options: ScoreOptions,
) -> tuple[Tensor, AttentionWeights]:
    """`attend`, and its weights: one call along the pairs of all rows and heads of the batch."""
    graph = mask.restricted(graph)
    n = q.shape[-2]
    if mask.first_query or mask.first_key:
        positions = key_positions(graph, mask, n, k)
        allowed = _allowed_after_cache(q, k, graph, mask)
        pairs = allowed.flatten(0, 1).any(0).nonzero().T
        member: Tensor | None = allowed[:, :, pairs[0], pairs[1]]
    else:
        k, v, mask, options = without_unfilled_cache(q, k, v, mask, options)
        positions = torch.arange(k.shape[-2], device=q.device)
        pairs, member = _pairs(q, k, graph, mask)
    m = k.shape[-2]
    edge_bias = None
    if member is not None:
        edge_bias = torch.zeros(member.shape, dtype=q.dtype, device=q.device)
        edge_bias = edge_bias.masked_fill(~member, -torch.inf).expand(*q.shape[:2], -1)
    along = (
        graph if isinstance(graph, Pattern) and member is None else from_edges(pairs, shape=(n, m))
    )
    out, weights, lse = call_attention(
        q, k, v, along, options, edge_bias=edge_bias, return_weights=True
    )
    assert weights is not None
    if lse is not None and options.sinks is not None:
        share = sink_share(lse, options.sinks)
        out, weights = (out * share[..., None]).to(out.dtype), weights * share[..., pairs[0]]
    shape = (q.shape[0], q.shape[1], n, int(positions[-1]) + 1)
    return out, AttentionWeights(pairs[0], positions[pairs[1]], weights, shape)


def _allowed_after_cache(
    q: Tensor, k: Tensor, graph: Graph | per_sample, mask: ModelMask
) -> Tensor:
    if not isinstance(graph, per_sample):
        return allowed_after_cache(q, k, graph, mask)
    check_family(graph, q)
    rows = [allowed_after_cache(q, k, one, mask.select([b])) for b, one in enumerate(graph)]
    return torch.cat([row.expand(-1, q.shape[1], -1, -1) for row in rows])


def _pairs(
    q: Tensor, k: Tensor, graph: Graph | per_sample, mask: ModelMask
) -> tuple[Tensor, Tensor | None]:
    """The pairs (2, e) of all rows and heads, and which rows and heads have each: (b, h, e).

    None if all have all.
    """
    (batch, heads, n), m, device = q.shape[:3], k.shape[-2], q.device
    if mask.runs is None and not isinstance(graph, per_sample | per_head):
        return graph.edges(n, m).to(device), None
    if isinstance(graph, per_sample):
        check_family(graph, q)
    rows = list(graph) if isinstance(graph, per_sample) else [graph] * batch
    found = [_row_pairs(rows[b], b, n, m, mask) for b in range(batch)]
    codes = torch.cat([code for row in found for code in row]).unique()
    member = torch.zeros(batch, heads, len(codes), dtype=torch.bool)
    for b, row in enumerate(found):
        for h, code in enumerate(row):
            at = torch.searchsorted(codes, code)
            member[b, h if len(row) > 1 else slice(None), at] = True
    return torch.stack([codes // m, codes % m]).to(device), member.to(device)


def _row_pairs(graph: Graph, row: int, n: int, m: int, mask: ModelMask) -> list[Tensor]:
    """The pairs of one row of the batch as i·m + j, for each head, or once for all."""
    each = list(graph) if isinstance(graph, per_head) else [graph]
    if mask.runs is None:
        return [_codes(one.edges(n, m), m) for one in each]
    runs = mask.runs
    own = (runs.index[:, 0] // n == row) & (runs.lengths > 0)
    found: list[list[Tensor]] = [[] for _ in each]
    for index, length, holes in zip(
        (runs.index[own] % n).cpu(),
        runs.lengths[own].tolist(),
        (torch.zeros_like(runs.inside) if runs.holes is None else runs.holes)[own].cpu(),
        strict=True,
    ):
        for parts, one in zip(found, each, strict=True):
            size = length if depends_on_length(one, n) else n
            i, j = one.edges(size)
            inside = (i < length) & (j < length)
            i, j = i[inside], j[inside]
            i, j = i[~holes[j]], j[~holes[j]]
            parts.append(index[i] * m + index[j])
    return [torch.cat(parts) if parts else torch.empty(0).long() for parts in found]


def _codes(pairs: Tensor, m: int) -> Tensor:
    return pairs[0] * m + pairs[1]
