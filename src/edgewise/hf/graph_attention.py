"""Attention along a graph, with positions counted from the first token that is not padding."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import causal, full, per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.grow.axes import length_dependent
from edgewise.hf.errors import NotAPrefix
from edgewise.hf.masks import ModelMask, TokenRuns, attend_in_runs
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.split import check_family

Graph = Pattern | per_head
TESTED_LENGTH = 33  # at which a graph must be causal


@dataclass(frozen=True, eq=False)
class ScoreOptions:
    """Scale, dropout and bias of the scores; `bias` broadcasts to (batch, heads, n, m)."""

    scale: float | None
    dropout: float = 0.0
    bias: Tensor | None = None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | per_sample,
    mask: ModelMask,
    options: ScoreOptions,
) -> Tensor:
    """q (batch, heads, n, d), k and v (batch, key heads, m, d) → (batch, heads, n, d).

    A left-padded or packed row counts its tokens from 0, so that its output is the same as alone.
    The output at padding is undefined.
    """
    if isinstance(graph, per_sample):
        return _per_sample(q, k, v, graph, mask, options)
    graph = _intersected(graph, mask.allowed)
    if mask.first_query or mask.first_key:
        return _with_cache(q, k, v, graph, mask, options)
    k, v, mask, options = without_unfilled_cache(q, k, v, mask, options)
    if mask.runs is None:
        return _attention(q, k, v, graph, options)
    if depends_on_length(graph, q.shape[-2]):
        return _in_runs(q, k, v, graph, mask.runs.by_length(), options)
    if mask.runs.are_rows:
        return _right_padded(q, k, v, graph, mask.runs, options)
    if graph == full() and mask.documents is None:  # positions make no difference
        assert mask.real is not None
        return _attention(q, k, v, graph, _masked(options, mask.real[:, None, None]))
    return _in_runs(q, k, v, graph, [mask.runs], options)


def _per_sample(
    q: Tensor, k: Tensor, v: Tensor, graph: per_sample, mask: ModelMask, options: ScoreOptions
) -> Tensor:
    """Samples with equal graphs as one batch each."""
    check_family(graph, q)
    found, order = [], []
    for one in dict.fromkeys(graph):
        at = [number for number, other in enumerate(graph) if other == one]
        bias = options.bias
        bias = bias if bias is None or bias.shape[0] == 1 else bias[at]
        own = replace(options, bias=bias)
        found.append(attend(q[at], k[at], v[at], one, mask.select(at), own))
        order += at
    return torch.cat(found)[torch.tensor(order, device=q.device).argsort()]


def without_unfilled_cache(
    q: Tensor, k: Tensor, v: Tensor, mask: ModelMask, options: ScoreOptions
) -> tuple[Tensor, Tensor, ModelMask, ScoreOptions]:
    """Without the unfilled part of a static cache."""
    n = q.shape[-2]
    if k.shape[-2] <= n or "causal()" not in repr(mask.allowed):
        return k, v, mask, options
    mask = replace(mask, real=None if mask.real is None else mask.real[:, :n])
    mask = mask if mask.real is None or not mask.real.all() else replace(mask, real=None)
    bias = None if options.bias is None else options.bias[..., :n]
    return k[..., :n, :], v[..., :n, :], mask, replace(options, bias=bias)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, o: ScoreOptions, lengths: Tensor | None = None
) -> Tensor:
    return attention(q, k, v, graph, scale=o.scale, dropout=o.dropout, bias=o.bias, lengths=lengths)


def _right_padded(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, runs: TokenRuns, options: ScoreOptions
) -> Tensor:
    if runs.holes is not None:
        options = _masked(options, ~runs.holes[:, None, None])
    return _attention(q, k, v, graph, options, runs.lengths)


def _in_runs(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, parts: list[TokenRuns], options: ScoreOptions
) -> Tensor:
    return attend_in_runs(
        q, k, v, options.bias, parts,
        lambda q, k, v, bias, runs: _right_padded(
            q, k, v, graph, runs, replace(options, bias=bias)
        ),
    )  # fmt: skip


def _with_cache(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, mask: ModelMask, options: ScoreOptions
) -> Tensor:
    """Queries after a cache, each row with an offset of its own."""
    device, n, m = q.device, q.shape[-2], k.shape[-2]
    check_prefix(graph)
    i = mask.first_query + torch.arange(n, device=device)[:, None]
    j = mask.first_key + torch.arange(m, device=device)
    if mask.starts is not None:
        i, j = i - mask.starts[:, None, None], j - mask.starts[:, None, None]
    size = mask.first_key + m
    length = max(size, mask.first_query + n)
    allowed = torch.stack([one.contains(i, j, length) for one in _each(graph)], -3)
    if mask.real is not None:
        allowed = allowed & mask.real[:, None, None, :m]
    return _attention(q, k, v, full(), _masked(options, allowed))


def _masked(options: ScoreOptions, allowed: Tensor) -> ScoreOptions:
    """Scores of -∞ where `allowed` is False."""
    low = torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, -torch.inf)
    return replace(options, bias=low if options.bias is None else options.bias + low)


def _intersected(graph: Graph, allowed: Pattern) -> Graph:
    if allowed == full() or graph == allowed:
        return graph
    return allowed if graph == full() else graph & allowed


@lru_cache(maxsize=256)
def depends_on_length(graph: Graph, n: int) -> bool:
    """True if a graph is also defined for fewer than n tokens, and its pairs may differ there."""
    if all(length_dependent(one) is None for one in _each(graph)):
        return False
    try:
        for one in _each(graph):
            one.contains(0, 0, max(n - 1, 1))
    except EdgewiseError:
        return False
    return True


@lru_cache(maxsize=256)
def check_prefix(graph: Graph) -> None:
    """Refuse a graph in which more tokens change what earlier ones attend to."""
    for one in _each(graph):
        part = length_dependent(one)
        if part is not None:
            raise NotAPrefix(
                f"the pairs of `{part!r}` depend on the sequence length",
                caller(),
                "generate with `use_cache=False`, or use a pattern that does not depend on it",
            )
    if not torch.equal(graph.dense(TESTED_LENGTH), (graph & causal()).dense(TESTED_LENGTH)):
        raise NotAPrefix(
            f"`{graph!r}` attends to later tokens, which a cache does not have",
            caller(),
            "intersect it: `graph & causal()`",
        )


def _each(graph: Graph) -> tuple[Pattern, ...]:
    return tuple(graph) if isinstance(graph, per_head) else (graph,)
