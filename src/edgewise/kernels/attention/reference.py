"""Attention written down: every score, any case. It defines what the other kernels compute.

s_ij = score(scale · edge_scale_ij · q_i·(k_j + edge_key_ij)) + bias_ij + edge_bias_ij,
p_ij = exp(s_ij) / Σ_{j' : (i, j') ∈ graph} exp(s_ij'),  out_i = Σ_j p_ij (v_j + edge_value_ij);
a row without keys gives 0, and its log-sum-exp is -∞. These are plain operations of torch, which
can be differentiated as often as one likes.
"""

import torch
from torch import Tensor

from edgewise.kernels.attention import memory
from edgewise.kernels.attention.contract import EDGE_TERMS, Case, Grads, Saved, Terms, wide
from edgewise.scores.evaluate import PairScores

name = "reference"
nesting = 3  # never a part of another
LIMIT = 1 << 28


def refuses(case: Case) -> str | None:
    scores = case.b * case.g * case.n * case.m
    if scores > LIMIT:
        return f"it stores all {scores:,} scores, more than {LIMIT:,}"
    return case.lacks(*EDGE_TERMS)


def cost(case: Case) -> float:
    return 30.0 * case.b * case.g * case.n * case.m + 1e6


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    memory.check(
        6 * case.b * case.g * case.n * case.m * wide(case.dtype).itemsize,
        case.device,
        f"`reference`, which writes out all {case.n:,}×{case.m:,} scores of each head,",
        "leave out `kernel=`: the others store no scores",
    )
    scores = _scores(case, q, k, terms)
    nonempty = (scores != -torch.inf).any(-1, keepdim=True)  # NaN counts
    lse = torch.logsumexp(torch.where(nonempty, scores, 0), -1, keepdim=True)
    weights = torch.where(nonempty, torch.exp(scores - lse), 0)  # 0 where -∞ is all there is
    out = _valued(case, weights * _keep(case, terms, weights), v, terms)
    return out, torch.where(nonempty, lse, -torch.inf)[..., 0].to(wide(q.dtype))


def backward(case: Case, saved: Saved, dout: Tensor, dlse: Tensor | None = None) -> Grads:
    """By autograd, where no second derivative is needed."""
    with torch.enable_grad():
        q, k, v = (x.detach().requires_grad_() for x in (saved.q, saved.k, saved.v))
        rest = [None if x is None else x.detach().requires_grad_() for x in saved.terms.tensors]
        out, lse = forward(case, q, k, v, Terms.of(rest, saved.terms.drop))
    finite = torch.zeros_like(lse) if dlse is None else dlse.masked_fill(lse == -torch.inf, 0)
    inputs = [q, k, v, *(x for x in rest if x is not None)]
    found = torch.autograd.grad((out, lse), inputs, (dout, finite), materialize_grads=True)
    dq, dk, dv, *others = found
    grads = iter(others)
    return Grads(dq, dk, dv, Terms.of([None if x is None else next(grads) for x in rest]))


def _scores(case: Case, q: Tensor, k: Tensor, terms: Terms) -> Tensor:
    dot = q @ k[:, None].mT
    i, j = case.graph.edges(case.n, case.m).to(q.device)
    if terms.edge_key is not None:
        dot = dot + _dense(case, (q[:, :, i] * terms.edge_key[:, None]).sum(-1), i, j)
    dot = dot * case.scale
    if terms.edge_scale is not None:
        dot = dot * _dense(case, terms.edge_scale.to(dot.dtype), i, j)
    scores = _pairs(case, dot.to(wide(q.dtype)), terms)[case.score]
    scores = scores.expand(case.b * case.g, case.n, case.m).reshape(dot.shape).to(dot.dtype)
    if terms.bias is not None:
        scores = scores + terms.bias
    if terms.edge_bias is not None:
        scores = scores + _dense(case, terms.edge_bias.to(dot.dtype), i, j)
    absent = torch.ones(case.n, case.m, dtype=torch.bool, device=q.device)
    absent[i, j] = False
    return scores.masked_fill(absent, -torch.inf)


def _pairs(case: Case, dot: Tensor, terms: Terms) -> PairScores:
    i, j = (torch.arange(size, device=dot.device) for size in (case.n, case.m))
    h = torch.arange(case.b * case.g, device=dot.device).view(-1, 1, 1)
    return PairScores(dot.flatten(0, 1), i[:, None], j[None], h, terms.tables)


def _dense(case: Case, per_edge: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """(b, g, n, m) of (b, g, e), 0 elsewhere."""
    zeros = per_edge.new_zeros(*per_edge.shape[:2], case.n * case.m)
    return zeros.index_copy(2, i * case.m + j, per_edge).unflatten(2, (case.n, case.m))


def _keep(case: Case, terms: Terms, weights: Tensor) -> Tensor | float:
    if terms.drop is None:
        return 1.0
    i, j = (torch.arange(size, device=weights.device) for size in (case.n, case.m))
    factors = terms.drop.keep(case.b * case.g, i[:, None], j[None], weights.dtype)
    return factors.view(weights.shape)


def _valued(case: Case, weights: Tensor, v: Tensor, terms: Terms) -> Tensor:
    out = weights.to(v.dtype) @ v[:, None]
    if terms.edge_value is None:
        return out
    i, j = case.graph.edges(case.n, case.m).to(v.device)
    each = weights[:, :, i, j][..., None] * terms.edge_value[:, None]
    return out.index_add(2, i, each.to(out.dtype))
