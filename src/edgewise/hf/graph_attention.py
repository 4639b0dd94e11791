"""Attention along a graph, with positions counted from the first token that is not padding."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from edgewise.distributed.errors import NotDistributed
from edgewise.distributed.shards import Shards
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import causal, full, per_head, per_sample
from edgewise.graphs.lengths import length_dependent
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import EvictedKeys, NotAPrefix
from edgewise.hf.eviction import Graph, retained_positions
from edgewise.hf.masks import ModelMask, TokenRuns, attend_in_runs
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.calls.split import check_family
from edgewise.scores import softcap

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

TESTED_LENGTH = 33  # at which a graph must be causal


@dataclass(frozen=True, eq=False)
class ScoreOptions:
    """Scale, dropout and bias of the scores; `bias` broadcasts to (batch, heads, n, m).

    `softcap` c makes c·tanh(s/c) of a score s before the bias; `sinks` (heads,) are scores that
    each softmax has beside those of its keys.
    """

    scale: float | None
    dropout: float = 0.0
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


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
    graph = mask.restricted(graph)
    if mask.first_query or mask.first_key:
        return _with_cache(q, k, v, graph, mask, options)
    k, v, mask, options = without_unfilled_cache(q, k, v, mask, options)
    if mask.runs is None:
        return _attention(q, k, v, graph, options)
    if depends_on_length(graph, q.shape[-2]):
        return _in_runs(q, k, v, graph, mask.runs.by_length(), options)
    parts = mask.runs.parts(q.shape[1] * q.shape[-1])
    if len(parts) > 1:
        return _in_runs(q, k, v, graph, parts, options)
    if mask.runs.are_rows:
        return _right_padded(q, k, v, graph, mask.runs, options)
    if graph == full() and mask.documents is None:  # positions make no difference
        assert mask.real is not None
        return _attention(q, k, v, graph, _masked(options, mask.real[:, None, None]))
    return _in_runs(q, k, v, graph, parts, options)


class MeshPlace(NamedTuple):
    """One axis of a mesh, and which tokens each of its ranks has."""

    mesh: "DeviceMesh"
    shards: Shards | None


def attend_on_mesh(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | per_sample,
    mask: ModelMask,
    options: ScoreOptions,
    place: MeshPlace,
) -> Tensor:
    """The same for the tokens of this rank, over those of all ranks of a mesh."""
    if isinstance(graph, per_sample):
        raise refuse_on_mesh("each sample has a graph of its own")
    if mask.first_query or mask.first_key or q.shape[-2] != k.shape[-2]:
        raise refuse_on_mesh("there is a cache of keys")
    if mask.runs is not None:
        raise refuse_on_mesh("the batch has padding or packed sequences")
    for name in ("bias", "softcap", "sinks"):
        if getattr(options, name) is not None:
            raise refuse_on_mesh(f"the scores have a {name}")
    return attention(
        q, k, v, mask.restricted(graph),
        scale=options.scale,
        dropout=options.dropout,
        mesh=place.mesh,
        shards=place.shards,
    )  # fmt: skip


def refuse_on_mesh(what: str) -> NotDistributed:
    return NotDistributed(
        f"attention on a mesh: {what}",
        caller(),
        "give every rank tokens of complete sequences, without padding or a cache; else "
        "`hf.use(model, graph)` without `mesh=`",
    )


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


class Called(NamedTuple):
    """What the kernel returns: the output; weights (batch, heads, e), log-sum-exp if requested."""

    out: Tensor
    weights: Tensor | None = None
    lse: Tensor | None = None


def call_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph,
    options: ScoreOptions,
    *,
    lengths: Tensor | None = None,
    edge_bias: Tensor | None = None,
    return_weights: bool = False,
) -> Called:
    """The kernel with the scores of `options`, without their sinks."""
    return_lse = options.sinks is not None
    found = attention(
        q, k, v, graph,
        scale=options.scale,
        dropout=options.dropout,
        bias=options.bias,
        score=None if options.softcap is None else softcap(options.softcap),
        lengths=lengths,
        edge_bias=edge_bias,
        return_lse=return_lse,
        return_weights=return_weights,
    )  # fmt: skip
    out, *more = found if isinstance(found, tuple) else (found,)
    return Called(out, more[-1] if return_weights else None, more[0] if return_lse else None)


def sink_share(lse: Tensor, sinks: Tensor) -> Tensor:
    """What a sink with score s leaves of the weights: σ(lse - s), (batch, heads, n)."""
    return torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])


def _attention(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, o: ScoreOptions, lengths: Tensor | None = None
) -> Tensor:
    out, _, lse = call_attention(q, k, v, graph, o, lengths=lengths)
    if lse is None or o.sinks is None:
        return out
    return (out * sink_share(lse, o.sinks)[..., None]).to(out.dtype)


def _right_padded(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, runs: TokenRuns, options: ScoreOptions
) -> Tensor:
    if runs.holes is not None:
        options = _masked(options, ~runs.holes[:, None, None])
    return _attention(q, k, v, graph, options, None if runs.even else runs.lengths)


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
    allowed = allowed_after_cache(q, k, graph, mask)
    return _attention(q, k, v, full(), _masked(options, allowed))


def allowed_after_cache(q: Tensor, k: Tensor, graph: Graph, mask: ModelMask) -> Tensor:
    """Which cached keys each query attends to: (batch or 1, heads or 1, n, m)."""
    known = mask.allowed_after_cache
    key = (graph, q.shape[-2], k.shape[-2], k.device)
    if key not in known:
        known[key] = _allowed_after_cache(q, k, graph, mask)
    return known[key]


def _allowed_after_cache(q: Tensor, k: Tensor, graph: Graph, mask: ModelMask) -> Tensor:
    check_prefix(graph)
    n = q.shape[-2]
    i = mask.first_query + torch.arange(n, device=q.device)[:, None]
    j = key_positions(graph, mask, n, k)
    length = max(int(j[-1]) + 1, mask.first_query + n)
    real = None if mask.real is None else mask.real[:, None, None, j - mask.first_key]
    if mask.starts is not None:
        i, j = i - mask.starts[:, None, None], j - mask.starts[:, None, None]
    allowed = torch.stack([one.contains(i, j, length) for one in _each(graph)], -3)
    allowed = allowed if allowed.ndim == 4 else allowed[None]
    return allowed if real is None else allowed & real


def key_positions(graph: Graph | per_sample, mask: ModelMask, n: int, k: Tensor) -> Tensor:
    """The positions of the keys: those that the cache retains, then those of the n queries."""
    m, first = k.shape[-2], mask.first_query
    if mask.first_key or m >= first + n:
        return mask.first_key + torch.arange(m, device=k.device)
    held = None
    if not isinstance(graph, per_sample):
        held = retained_positions(graph, first, mask.distinct_starts)
    if held is None or len(held) + n != m:
        raise EvictedKeys(
            f"the cache has {m - n} of {first} keys, not those that `{graph!r}` needs",
            caller(),
            "start with a new cache after `hf.use`, and give every call the same mask",
        )
    return torch.cat([held, torch.arange(first, first + n)]).to(k.device)


def _masked(options: ScoreOptions, allowed: Tensor) -> ScoreOptions:
    """Scores of -∞ where `allowed` is False."""
    low = torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, -torch.inf)
    return replace(options, bias=low if options.bias is None else options.bias + low)


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
