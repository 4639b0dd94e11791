"""One call of attention: shapes, terms, padding and heads around a kernel."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.families import per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments, dense, memory
from edgewise.kernels.attention.contract import (
    FIXED,
    Case,
    Implementation,
    Terms,
    default_scale,
)
from edgewise.kernels.attention.dropout import Dropout
from edgewise.kernels.attention.function import attend
from edgewise.kernels.attention.options import Options
from edgewise.kernels.attention.registry import choose
from edgewise.kernels.attention.several import Graph, joined, split
from edgewise.scores.nodes import ZERO, Entry, H, Node, S, replaced, walk
from edgewise.scores.score import Score

FAR = 1e30  # exp(-FAR) is 0 beside the weight of any score


def call(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options
) -> tuple[Tensor, Tensor | None]:
    """The output, and the log-sum-exp if it is asked for."""
    if not isinstance(graph, Pattern):
        return _in_parts(q, k, v, graph, options)
    if options.scale <= 0:  # kernels take the largest score before they scale it
        turned = replace(options, scale=-options.scale or 1.0)
        return call(-q if options.scale else q * 0, k, v, graph, turned)
    if options.lengths is not None:
        return _padded(q, k, v, graph, options)
    tensors = arguments.grouped(q, k, v)
    case, terms = asked(q, k, tensors, graph, options)
    chosen = choose(case, options.kernel).implementation
    return run(case, chosen, tensors, terms, q.shape[:-1], lse=options.lse)


def run(
    case: Case,
    chosen: Implementation,
    tensors: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
    shape: torch.Size,
    *,
    lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """The chosen kernel on tensors as it takes them, in the shape of the queries again."""
    with memory.explained(case, chosen.name):
        if chosen is dense and not lse:
            out = dense.attend(case, *tensors, terms)
            return out.reshape(*shape, case.dv), None
        out, sums = attend(chosen, case, *tensors, terms)
    return out.reshape(*shape, case.dv), sums.reshape(shape) if lse else None


def numbered(q: Tensor, score: Score) -> tuple[Node, tuple[Tensor, ...]]:
    """With a table for the numbers of heads: they stay the same whichever heads go together."""
    if H not in list(walk(score.node)):
        return score.node, score.tables
    heads = q.shape[-3] if q.ndim > 2 else 1
    numbers = torch.arange(heads, device=q.device, dtype=torch.float32)[:, None]
    node = replaced(score.node, {H: Entry(len(score.tables), ZERO)})
    return node, (*score.tables, numbers)


def asked(
    q: Tensor, k: Tensor, tensors: tuple[Tensor, Tensor, Tensor], graph: Pattern, options: Options
) -> tuple[Case, Terms]:
    """The case and the terms as kernels take them."""
    case = arguments.build_case(tensors, graph, options.scale, options.offset)
    drop = Dropout(options.dropout, options.seed) if options.dropout else None
    pairs = ("bias", "edge_bias", "edge_scale", "edge_key", "edge_value")
    names = [name for name in pairs if getattr(options, name) is not None]
    given: dict[str, Tensor] = {}
    for name in names:
        given[name] = arguments.term_for(getattr(options, name), name, case, q, k)
    tables = tuple(arguments.table_for(t, q) for t in options.tables)
    terms = Terms(**given, tables=tables, drop=drop)
    asked = {"score": options.score != S, "dropout": drop is not None, "lse": options.lse}
    asked[FIXED] = bool(tables) and not any([table.requires_grad for table in tables])
    features = frozenset([*names, *(name for name, wanted in asked.items() if wanted)])
    if not features:
        return case, terms
    case = replace(case, features=features, score=options.score)
    return _on_pairs(case, terms) if case.is_full else (case, terms)


def _on_pairs(case: Case, terms: Terms) -> tuple[Case, Terms]:
    """Where all pairs are edges, a bias of edges is one of pairs."""
    if terms.edge_bias is None:
        return case, terms
    square = terms.edge_bias.unflatten(-1, (case.n, case.m))
    square = square if terms.bias is None else square + terms.bias
    features = case.features - {"edge_bias"} | {"bias"}
    return replace(case, features=features), replace(terms, bias=square, edge_bias=None)


def _padded(
    q: Tensor, k: Tensor, v: Tensor, graph: Pattern, options: Options
) -> tuple[Tensor, Tensor | None]:
    """Keys from lengths[b] on do not exist: one more feature of theirs makes their scores low.

    So no mask per batch element is needed, and every kernel can do it. Queries that hear late keys
    only lack the feature: their scores stay such that gradients of what is cleared are zeros.
    """
    lengths = arguments.check_lengths(options.lengths, q, k)
    late = torch.arange(k.shape[-2], device=q.device) >= lengths[..., None]
    if options.has_terms:
        return _masked(q, k, v, graph, options, late)
    first = _first_key(graph, options.offset, q.shape[-2], k.shape[-2]).to(q.device)
    heard = first < lengths[..., None]
    heard = heard[..., None, :] if q.ndim > 2 else heard
    late = late[..., None, :, None] if k.ndim > 2 else late[..., None]
    least = max(-FAR / options.scale, torch.finfo(k.dtype).min)
    low = torch.where(late, least, 0.0).to(k.dtype)
    q = torch.cat([q, heard[..., None].to(q.dtype).expand(*q.shape[:-1], 1)], -1)
    k = torch.cat([k, low.expand(*k.shape[:-1], 1)], -1)
    out, lse = call(q, k, v, graph, replace(options, lengths=None))
    out = torch.where(heard[..., None], out, 0.0)
    return out, None if lse is None else torch.where(heard, lse, -torch.inf)


def _masked(
    q: Tensor, k: Tensor, v: Tensor, graph: Pattern, options: Options, late: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The same by a bias of -∞."""
    late = late[..., None, None, :] if k.ndim > 2 else late[..., None, :]
    bias = torch.zeros(late.shape, dtype=q.dtype, device=q.device).masked_fill(late, -torch.inf)
    if options.bias is not None:
        lead = (*q.shape[:-1], k.shape[-2])
        bias = bias + arguments.bias_for(options.bias, "bias", lead, q)
    return call(q, k, v, graph, replace(options, lengths=None, bias=bias))


@lru_cache(maxsize=64)
def _first_key(graph: Pattern, offset: int, n: int, m: int) -> Tensor:
    """The first key that each query hears; m where there is none."""
    rows = (graph.shift(-offset, 0) if offset else graph).rows(n, m).expand()
    first = np.full(n, m, np.int64)
    np.minimum.at(first, rows.slab, rows.start)
    return torch.from_numpy(first)


def _in_parts(
    q: Tensor, k: Tensor, v: Tensor, graphs: per_head | per_sample, options: Options
) -> tuple[Tensor, Tensor | None]:
    """One call for each different graph."""
    parts = split(q, k, v, graphs, options)
    found = [call(*part.tensors, part.graph, part.options) for part in parts]
    order = [at for part in parts for at in part.at]
    axis = 4 if isinstance(graphs, per_sample) else 3
    out = joined([out for out, _ in found], order, -axis)
    sums = [lse for _, lse in found if lse is not None]
    return out, joined(sums, order, 1 - axis) if options.lse else None


def scale_of(q: Tensor, scale: float | None) -> float:
    return default_scale(q.shape[-1]) if scale is None else float(scale)
