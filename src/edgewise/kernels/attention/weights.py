"""The weights themselves, one per pair of the graph: for looking, and for losses on attention."""

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments

CHUNK = 1 << 24  # numbers gathered at a time


def edge_weights(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    pairs: Tensor,
    *,
    scale: float,
    biases: tuple[Tensor | None, Tensor | None],
    lengths: Tensor | None,
) -> Tensor:
    """p_ij = exp(scale · q_i·k_j + bias_ij - lse_i) for the pairs (2, e): (..., heads, e)."""
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)
    step = max(CHUNK // max(q.numel() // max(q.shape[-2], 1), 1), 1)
    bias, edge_bias = biases
    parts = []
    for at in range(0, max(pairs.shape[1], 1), step):
        i, j = pairs[:, at : at + step]
        score = (q[..., i, :] * k[..., j, :]).sum(-1).to(lse.dtype) * scale
        if bias is not None:
            score = score + bias.expand(*lse.shape, k.shape[-2])[..., i, j]
        if edge_bias is not None:
            score = score + edge_bias[..., at : at + step]
        if lengths is not None:
            there = j < lengths[..., None]
            score = torch.where(there[..., None, :] if q.ndim > 2 else there, score, -torch.inf)
        parts.append(torch.exp(score - torch.where(lse == -torch.inf, torch.inf, lse)[..., i]))
    return torch.cat(parts, -1)


def weights_of(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    graph: Pattern,
    *,
    scale: float,
    bias: Tensor | None,
    edge_bias: Tensor | None,
    lengths: Tensor | None,
    offset: int,
) -> Tensor:
    """The weights of a finished call, from its log-sum-exp."""
    graph = graph.shift(-offset, 0) if offset else graph
    pairs = graph.edges(q.shape[-2], k.shape[-2]).to(q.device)
    if bias is not None:
        bias = arguments.bias_for(bias, "bias", (*lse.shape, k.shape[-2]), q)
    return edge_weights(q, k, lse, pairs, scale=scale, biases=(bias, edge_bias), lengths=lengths)
