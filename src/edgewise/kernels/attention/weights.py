"""The weights themselves, one per pair of the graph: for looking, and for losses on attention."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.families import per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments, memory
from edgewise.kernels.attention.call import asked
from edgewise.kernels.attention.contract import wide
from edgewise.kernels.attention.options import Options
from edgewise.kernels.attention.several import Graph, split
from edgewise.kernels.attention.terms import Scores, Tile, places

CHUNK = 1 << 24  # numbers gathered at a time


def check_room(q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options) -> None:
    """Raise before anything is computed if the weights will not fit."""
    work, size = _room(q, k, v, graph, options)
    memory.check(
        size,
        q.device.type,
        f"`return_weights` for {work:,} pairs",
        "ask for `return_lse=True` and compute the weights of the pairs you look at",
    )


def _room(q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options) -> tuple[int, int]:
    """Pairs and bytes."""
    if not isinstance(graph, Pattern):
        parts = split(q, k, v, graph, options)
        found = [_room(*part.tensors, part.graph, part.options) for part in parts]
        return sum(work for work, _ in found), sum(size for _, size in found)
    case = arguments.build_case(arguments.grouped(q, k, v), graph, options.scale, options.offset)
    return case.work, 4 * case.work * wide(case.dtype).itemsize + 16 * case.pairs


def weights_of(q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options) -> Any:
    """p_ij = exp(s_ij - max_j s_ij) / Σ_j exp(s_ij - max_j s_ij): (..., heads, e).

    They are a softmax of their own: beside a log-sum-exp that a kernel rounds otherwise, a weight
    of large scores would be above 1. Where heads have graphs of their own, a list with (..., e) of
    each; where samples have, a list with (heads, e) of each, or with such a list.
    """
    if not isinstance(graph, Pattern):
        return _of_each(q, k, v, graph, options)
    tensors = arguments.grouped(q, k, v)
    case, terms = asked(q, k, tensors, graph, replace(options, lengths=None))
    i, j = places(case.graph, case.n, case.m, case.device)
    dot = _dots(tensors[0], tensors[1], terms.edge_key, i, j) * case.scale
    tile = Tile(i, j, torch.arange(len(i), device=i.device))
    score = Scores(case, terms, tile, dot).values().reshape(*q.shape[:-2], len(i))
    if options.lengths is not None:
        lengths = torch.as_tensor(options.lengths, device=q.device)
        there = j < lengths[..., None]
        score = torch.where(there[..., None, :] if q.ndim > 2 else there, score, -torch.inf)
    return _softmax(score, i, case.n)


def _softmax(score: Tensor, i: Tensor, n: int) -> Tensor:
    """Of each row's scores; 0 in rows where all are -∞."""
    low = score.new_full((*score.shape[:-1], n), -torch.inf)
    most = low.scatter_reduce(-1, i.expand(score.shape), score.detach(), "amax")
    most = torch.where(most == -torch.inf, 0, most)
    part = torch.exp(score - most[..., i])
    total = torch.zeros_like(most).index_add(-1, i, part)
    return part / torch.where(total == 0, 1, total)[..., i]


def _of_each(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graphs: per_head | per_sample,
    options: Options,
) -> list[Any]:
    out: list[Any] = [None] * len(graphs)
    for part in split(q, k, v, graphs, options):
        found = weights_of(*part.tensors, part.graph, part.options)
        for number, at in enumerate(part.at):
            if isinstance(graphs, per_head):
                out[at] = found[..., number, :]
            elif isinstance(found, list):
                out[at] = [of_head[number] for of_head in found]
            else:
                out[at] = found[number]
    return out


def _dots(q: Tensor, k: Tensor, edge_key: Tensor | None, i: Tensor, j: Tensor) -> Tensor:
    kind = wide(q.dtype)
    step = max(CHUNK // max(q.shape[0] * q.shape[1] * q.shape[-1], 1), 1)
    parts = []
    for at in range(0, max(len(i), 1), step):
        part = slice(at, at + step)
        keys = k[:, j[part]]
        keys = keys if edge_key is None else keys + edge_key[:, part]
        parts.append((q[:, :, i[part]].to(kind) * keys[:, None].to(kind)).sum(-1))
    return torch.cat(parts, -1)
