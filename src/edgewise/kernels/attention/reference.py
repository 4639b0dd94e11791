"""Attention written down: every score, any case. It defines what the other kernels compute.

s_ij = scale · q_i·k_j + bias_ij,  p_ij = exp(s_ij) / Σ_{j' : (i, j') ∈ graph} exp(s_ij'),
out_i = Σ_j p_ij v_j;  a row without keys gives 0, and its log-sum-exp is -∞.
"""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide

name = "reference"
LIMIT = 1 << 28


def refuses(case: Case) -> str | None:
    scores = case.b * case.g * case.n * case.m
    if scores > LIMIT:
        return f"it stores all {scores:,} scores, more than {LIMIT:,}"
    return case.lacks("bias", "edge_bias", "dropout")


def cost(case: Case) -> float:
    return 30.0 * case.b * case.g * case.n * case.m + 1e6


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    scores = _scores(case, q, k, terms)
    lse = torch.logsumexp(scores, -1)
    heard = torch.where(lse == -torch.inf, torch.inf, lse)
    weights = torch.exp(scores - heard[..., None])
    weights = weights * _keep(case, terms, weights)
    return weights.to(v.dtype) @ v[:, None], lse.to(wide(q.dtype))


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    q, k, v, terms = saved.q, saved.k, saved.v, saved.terms
    with torch.enable_grad():
        bias = None if terms.bias is None else terms.bias.detach().requires_grad_()
        edge = None if terms.edge_bias is None else terms.edge_bias.detach().requires_grad_()
        queries, keys = q.detach().requires_grad_(), k.detach().requires_grad_()
        scores = _scores(case, queries, keys, Terms(bias, edge))
    weights = torch.exp(scores.detach() - saved.lse[..., None].to(scores.dtype))
    delta = (dout * saved.out).sum(-1, keepdim=True)
    keep = _keep(case, terms, weights)
    dscores = weights * (dout @ v[:, None].mT * keep - delta)
    dv = ((weights * keep).mT.to(dout.dtype) @ dout).sum(1)
    inputs = [x for x in (queries, keys, bias, edge) if x is not None]
    grads = list(torch.autograd.grad(scores, inputs, dscores.to(scores.dtype)))
    dq, dk = grads[0], grads[1]
    rest = iter(grads[2:])
    return Grads(
        dq, dk, dv, None if bias is None else next(rest), None if edge is None else next(rest)
    )


def _keep(case: Case, terms: Terms, weights: Tensor) -> Tensor | float:
    if terms.keep is None:
        return 1.0
    i, j = case.graph.edges(case.n, case.m).to(weights.device)
    keep = torch.zeros_like(weights)
    keep[..., i, j] = terms.keep.to(weights.dtype)
    return keep


def _scores(case: Case, q: Tensor, k: Tensor, terms: Terms) -> Tensor:
    scores = (q @ k[:, None].mT) * case.scale
    if terms.bias is not None:
        scores = scores + terms.bias
    i, j = case.graph.edges(case.n, case.m).to(q.device)
    if terms.edge_bias is not None:
        extra = torch.zeros_like(scores)
        extra[..., i, j] = terms.edge_bias.to(scores.dtype)
        scores = scores + extra
    absent = torch.ones(case.n, case.m, dtype=torch.bool, device=q.device)
    absent[i, j] = False
    return scores.masked_fill(absent, -torch.inf)
