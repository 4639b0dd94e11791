"""Attention along a graph, for tokens that count from the first one that is not padding."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import causal, full, per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.grow.patterns import varies
from edgewise.hf.errors import NotAPrefix
from edgewise.hf.mask import Mask, Runs
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.split import check_family

Graph = Pattern | per_head
TRIED = 33  # a length at which a graph must not look ahead


@dataclass(frozen=True, eq=False)
class Options:
    """How scores become weights; `bias` broadcasts to (batch, heads, queries, keys)."""

    scale: float | None
    dropout: float = 0.0
    bias: Tensor | None = None


def attend(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph | per_sample, mask: Mask, options: Options
) -> Tensor:
    """q (batch, heads, n, d), k and v (batch, key heads, m, d) → (batch, heads, n, d).

    A left-padded or packed row counts its tokens from 0, so that it hears what it would hear
    alone. What padding itself hears is not defined.
    """
    if isinstance(graph, per_sample):
        return _in_samples(q, k, v, graph, mask, options)
    graph = _met(graph, mask.allowed)
    if mask.first_query or mask.first_key:
        return _continued(q, k, v, graph, mask, options)
    k, v, mask, options = shortened(q, k, v, mask, options)
    if mask.runs is None:
        return _attention(q, k, v, graph, options)
    if changes(graph, q.shape[-2]):
        return _in_runs(q, k, v, graph, mask.runs.by_length(), options)
    if mask.runs.whole:
        return _right_padded(q, k, v, graph, mask.runs, options)
    if graph == full() and mask.documents is None:  # where tokens stand makes no difference
        assert mask.real is not None
        return _attention(q, k, v, graph, _unless(options, mask.real[:, None, None]))
    return _in_runs(q, k, v, graph, [mask.runs], options)


def _in_samples(
    q: Tensor, k: Tensor, v: Tensor, graph: per_sample, mask: Mask, options: Options
) -> Tensor:
    """Samples of one graph together, one graph after another."""
    check_family(graph, q)
    found, order = [], []
    for one in dict.fromkeys(graph):
        at = [number for number, other in enumerate(graph) if other == one]
        bias = options.bias
        bias = bias if bias is None or bias.shape[0] == 1 else bias[at]
        told = replace(options, bias=bias)
        found.append(attend(q[at], k[at], v[at], one, mask.taken(at), told))
        order += at
    return torch.cat(found)[torch.tensor(order, device=q.device).argsort()]


def shortened(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, options: Options
) -> tuple[Tensor, Tensor, Mask, Options]:
    """Without the places of a cache of fixed size that no token has taken yet."""
    n = q.shape[-2]
    if k.shape[-2] <= n or "causal()" not in repr(mask.allowed):
        return k, v, mask, options
    mask = replace(mask, real=None if mask.real is None else mask.real[:, :n])
    mask = mask if mask.real is None or not mask.real.all() else replace(mask, real=None)
    bias = None if options.bias is None else options.bias[..., :n]
    return k[..., :n, :], v[..., :n, :], mask, replace(options, bias=bias)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, o: Options, lengths: Tensor | None = None
) -> Tensor:
    return attention(q, k, v, graph, scale=o.scale, dropout=o.dropout, bias=o.bias, lengths=lengths)


def _right_padded(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, runs: Runs, options: Options
) -> Tensor:
    if runs.holes is not None:
        options = _unless(options, ~runs.holes[:, None, None])
    return _attention(q, k, v, graph, options, runs.lengths)


def _in_runs(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, parts: list[Runs], options: Options
) -> Tensor:
    """Every run as one row of another batch, and back."""
    batch, heads, n = q.shape[:3]
    out = v.new_zeros(batch * n, heads, v.shape[-1])
    flat = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    for runs in parts:
        bias = None if options.bias is None else _bias_of(options.bias, runs, q)
        a, b, c = (x[runs.index].transpose(1, 2) for x in flat)
        found = _right_padded(a, b, c, graph, runs, replace(options, bias=bias))
        heard = found.transpose(1, 2)[runs.inside].to(out.dtype)
        out = out.index_copy(0, runs.index[runs.inside], heard)
    return out.unflatten(0, (batch, n)).transpose(1, 2)


def _bias_of(bias: Tensor, runs: Runs, q: Tensor) -> Tensor:
    n = q.shape[-2]
    row, at = runs.index[:, :1] // n, runs.index % n
    spread = bias.expand(q.shape[0], *bias.shape[1:-2], n, n)
    return spread[row[:, :, None], :, at[:, :, None], at[:, None, :]].permute(0, 3, 1, 2)


def _continued(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, mask: Mask, options: Options
) -> Tensor:
    """After a cache: few queries and many keys, each row at a place of its own."""
    device, n, m = q.device, q.shape[-2], k.shape[-2]
    check_prefix(graph)
    i = mask.first_query + torch.arange(n, device=device)[:, None]
    j = mask.first_key + torch.arange(m, device=device)
    if mask.starts is not None:
        i, j = i - mask.starts[:, None, None], j - mask.starts[:, None, None]
    size = mask.first_key + m
    length = max(size, mask.first_query + n)
    heard = torch.stack([one.contains(i, j, length) for one in _each(graph)], -3)
    if mask.real is not None:
        heard = heard & mask.real[:, None, None, :m]
    return _attention(q, k, v, full(), _unless(options, heard))


def _unless(options: Options, heard: Tensor) -> Options:
    """Scores of -∞ where `heard` is False."""
    low = torch.zeros(heard.shape, device=heard.device).masked_fill(~heard, -torch.inf)
    return replace(options, bias=low if options.bias is None else options.bias + low)


def _met(graph: Graph, allowed: Pattern) -> Graph:
    if allowed == full() or graph == allowed:
        return graph
    return allowed if graph == full() else graph & allowed


@lru_cache(maxsize=256)
def changes(graph: Graph, n: int) -> bool:
    """Whether fewer than n tokens may have other pairs; a graph of n tokens alone has no others."""
    if all(varies(one) is None for one in _each(graph)):
        return False
    try:
        for one in _each(graph):
            one.contains(0, 0, max(n - 1, 1))
    except EdgewiseError:
        return False
    return True


@lru_cache(maxsize=256)
def check_prefix(graph: Graph) -> None:
    """Refuse a graph in which one token more changes what earlier tokens hear."""
    for one in _each(graph):
        part = varies(one)
        if part is not None:
            raise NotAPrefix(
                f"with one token more `{part!r}` may have other pairs among those before",
                caller(),
                "generate with `use_cache=False`, or give a graph that each pair decides",
            )
    if not torch.equal(graph.dense(TRIED), (graph & causal()).dense(TRIED)):
        raise NotAPrefix(
            f"`{graph!r}` hears tokens that a cache does not have yet",
            caller(),
            "meet the graph with `causal()`",
        )


def _each(graph: Graph) -> tuple[Pattern, ...]:
    return tuple(graph) if isinstance(graph, per_head) else (graph,)
