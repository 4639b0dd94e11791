"""The weights themselves, one per pair of the graph: for looking, and for losses on attention."""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Terms, wide
from edgewise.kernels.attention.terms import Scores, Tile, places

CHUNK = 1 << 24  # numbers gathered at a time


def weights_of(
    case: Case,
    tensors: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
    lead: tuple[int, ...],
    lengths: Tensor | None,
) -> Tensor:
    """p_ij = exp(s_ij - max_j s_ij) / Σ_j exp(s_ij - max_j s_ij): (*lead, e).

    They are a softmax of their own: beside a log-sum-exp that a kernel rounds otherwise, a weight
    of large scores would be above 1.
    """
    i, j = places(case.graph, case.n, case.m, case.device)
    dot = _dots(tensors[0], tensors[1], terms.edge_key, i, j) * case.scale
    tile = Tile(i, j, torch.arange(len(i), device=i.device))
    score = Scores(case, terms, tile, dot).values().reshape(*lead, len(i))
    if lengths is not None:
        there = j < lengths[..., None]
        score = torch.where(there[..., None, :] if lead else there, score, -torch.inf)
    return _softmax(score, i, case.n)


def _softmax(score: Tensor, i: Tensor, n: int) -> Tensor:
    """Of each row's scores; 0 in rows where all are -∞."""
    low = score.new_full((*score.shape[:-1], n), -torch.inf)
    most = low.scatter_reduce(-1, i.expand(score.shape), score.detach(), "amax")
    most = torch.where(most == -torch.inf, 0, most)
    part = torch.exp(score - most[..., i])
    total = torch.zeros_like(most).index_add(-1, i, part)
    return part / torch.where(total == 0, 1, total)[..., i]


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
