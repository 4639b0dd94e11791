"""One call of attention: shapes, biases, padding and heads around a kernel."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments, dense
from edgewise.kernels.attention.contract import Case, Terms, default_scale
from edgewise.kernels.attention.function import attend
from edgewise.kernels.attention.registry import choose

FAR = 1e4  # exp(-FAR) is 0 beside any other weight, and FAR has digits left for a score


@dataclass(frozen=True, eq=False)
class Options:
    scale: float
    bias: Tensor | None = None
    edge_bias: Tensor | None = None
    dropout: float = 0.0
    lengths: Tensor | None = None
    offset: int = 0
    lse: bool = False
    kernel: str | None = None


def call(
    q: Tensor, k: Tensor, v: Tensor, graph: Pattern | per_head, options: Options
) -> tuple[Tensor, Tensor | None]:
    """The output, and the log-sum-exp if it is asked for."""
    if isinstance(graph, per_head):
        return _by_head(q, k, v, graph, options)
    if options.scale <= 0:  # kernels take the largest score before they scale it
        turned = replace(options, scale=-options.scale or 1.0)
        return call(-q if options.scale else q * 0, k, v, graph, turned)
    if options.lengths is not None:
        return _padded(q, k, v, graph, options)
    tensors = arguments.grouped(q, k, v)
    case, terms = _asked(q, tensors, graph, options)
    chosen = choose(case, options.kernel).implementation
    shape = q.shape[:-1]
    if chosen is dense and not options.lse:
        out = dense.attend(case, *tensors, terms, options.dropout)
        return out.reshape(*shape, case.dv), None
    if options.dropout:
        terms = replace(terms, keep=_keep(case, options.dropout, q))
    out, lse = attend(chosen, case, *tensors, terms)
    return out.reshape(*shape, case.dv), lse.reshape(shape)


def _asked(
    q: Tensor, tensors: tuple[Tensor, Tensor, Tensor], graph: Pattern, options: Options
) -> tuple[Case, Terms]:
    case, terms = arguments.build_case(tensors, graph, options.scale, options.offset), Terms()
    if options.bias is not None or options.edge_bias is not None:
        terms = _terms(case, q, options)
    asked = {
        "bias": terms.bias is not None,
        "edge_bias": terms.edge_bias is not None,
        "dropout": options.dropout > 0,
        "lse": options.lse,
    }
    features = frozenset(name for name, wanted in asked.items() if wanted)
    return (replace(case, features=features) if features else case), terms


def _keep(case: Case, dropout: float, q: Tensor) -> Tensor:
    chance = torch.full((case.b, case.g, case.pairs), 1 - dropout, device=q.device)
    return torch.bernoulli(chance) / (1 - dropout)


def _terms(case: Case, q: Tensor, options: Options) -> Terms:
    """Biases as kernels take them: a dense one where the graph is dense, else one per edge."""
    lead = q.shape[:-2] if q.ndim > 2 else (1,)
    square: Tensor | None = None
    edge: Tensor | None = None
    if options.bias is not None:
        square = arguments.bias_for(options.bias, "bias", (*lead, case.n, case.m), q)
        square = square.expand(*lead, *square.shape[-2:])
        square = square.reshape(case.b, case.g, *square.shape[-2:])
    if options.edge_bias is not None:
        edge = arguments.bias_for(options.edge_bias, "edge_bias", (*lead, case.pairs), q)
        edge = edge.expand(*lead, case.pairs).reshape(case.b, case.g, case.pairs)
    if edge is not None and case.is_full:
        whole = edge.unflatten(-1, (case.n, case.m))
        square, edge = whole if square is None else square + whole, None
    if square is not None and dense.refuses(case) is not None:
        i, j = case.graph.edges(case.n, case.m).to(q.device)
        read = square.expand(case.b, case.g, case.n, case.m)[..., i, j]
        square, edge = None, read if edge is None else edge + read
    return Terms(square, edge)


def _padded(
    q: Tensor, k: Tensor, v: Tensor, graph: Pattern, options: Options
) -> tuple[Tensor, Tensor | None]:
    """Keys from lengths[b] on do not exist: one more feature of theirs makes their scores low.

    So no mask per batch element is needed, and every kernel can do it.
    """
    lengths = arguments.check_lengths(options.lengths, q, k)
    late = torch.arange(k.shape[-2], device=q.device) >= lengths[..., None]
    late = late[..., None, :, None] if k.ndim > 2 else late[..., None]
    least = max(-FAR / options.scale, torch.finfo(k.dtype).min)
    low = torch.where(late, least, 0.0).to(k.dtype)
    q = torch.cat([q, torch.ones_like(q[..., :1])], -1)
    k = torch.cat([k, low.expand(*k.shape[:-1], 1)], -1)
    out, lse = call(q, k, v, graph, replace(options, lengths=None))
    first = _first_key(graph, options.offset, q.shape[-2], k.shape[-2]).to(q.device)
    heard = first < lengths[..., None]
    heard = heard[..., None, :] if q.ndim > 2 else heard
    out = torch.where(heard[..., None], out, 0.0)
    return out, None if lse is None else torch.where(heard, lse, -torch.inf)


@lru_cache(maxsize=64)
def _first_key(graph: Pattern, offset: int, n: int, m: int) -> Tensor:
    """The first key that each query hears; m where there is none."""
    rows = (graph.shift(-offset, 0) if offset else graph).rows(n, m).expand()
    first = np.full(n, m, np.int64)
    np.minimum.at(first, rows.slab, rows.start)
    return torch.from_numpy(first)


def _by_head(
    q: Tensor, k: Tensor, v: Tensor, graphs: per_head, options: Options
) -> tuple[Tensor, Tensor | None]:
    """Heads with the same graph go together."""
    members: dict[Pattern, list[int]] = {}
    for head, graph in enumerate(graphs):
        members.setdefault(graph, []).append(head)
    shared = q.shape[-3] // max(k.shape[-3], 1)
    outs, sums, order = [], [], []
    for graph, heads in members.items():
        keys = [head // shared for head in heads]
        of_heads = replace(options, bias=_heads_of(options.bias, heads, 3))
        parts = (q[..., heads, :, :], k[..., keys, :, :], v[..., keys, :, :])
        out, lse = call(*parts, graph, of_heads)
        outs.append(out)
        sums.append(lse)
        order += heads
    back = torch.tensor(order, device=q.device).argsort()
    out = torch.cat(outs, -3).index_select(-3, back)
    given = [lse for lse in sums if lse is not None]
    lse = torch.cat(given, -2).index_select(-2, back) if options.lse else None
    return out, lse


def _heads_of(bias: Tensor | None, heads: list[int], axis: int) -> Tensor | None:
    if bias is None or bias.ndim < axis or bias.shape[-axis] == 1:
        return bias
    return bias[..., heads, :, :]


def scale_of(q: Tensor, scale: float | None) -> float:
    return default_scale(q.shape[-1]) if scale is None else float(scale)
