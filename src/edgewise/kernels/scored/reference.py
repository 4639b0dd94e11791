"""Scored attention written down: every edge gets its own copy of what it reads."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.kernels.edges.index import EdgeIndex
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.scored.contract import Found, Grads, Inputs

name = "reference"


def refuses(dtype: torch.dtype, device: str, widest: int) -> str | None:
    return None


def scores(given: Inputs, i: Tensor, j: Tensor) -> Tensor:
    """s of each edge: (b, e)."""
    if given.kind == "given":
        assert given.t is not None
        return given.t[..., 0]
    q, k = given.q[:, i], given.k[:, j]
    bent = torch.nn.functional.leaky_relu(q + k, given.slope)
    if given.t is None:
        return bent[..., 0]
    return ((q * k if given.kind == "multiplicative" else bent) * given.t).sum(-1)


def _attended(given: Inputs, which: EdgeIndex) -> tuple[Tensor, Tensor]:
    i, j = which.rows.ids.long(), which.rows.index.long()
    score = scores(given, i, j)
    none = score.new_full((score.shape[0], which.rows.segments), -torch.inf)
    top = none.scatter_reduce(1, i.expand_as(score), score.detach(), "amax")
    top = torch.where(top == -torch.inf, 0, top)
    p = torch.exp(score - top[:, i])
    total = torch.zeros_like(top).index_add(1, i, p)
    kept = p if given.keep is None else p * given.keep
    out = given.v.new_zeros(len(score), which.rows.segments, given.v.shape[2])
    out = out.index_add(1, i, kept[..., None] * given.v[:, j])
    return out / torch.where(total == 0, 1, total)[..., None], total.log() + top


def _in(dtype: torch.dtype, given: Inputs) -> Inputs:
    tensors = [None if x is None else x.detach().to(dtype) for x in _tensors(given)]
    q, k, v, t, keep = tensors
    assert q is not None
    assert k is not None
    assert v is not None
    return Inputs(given.kind, given.slope, q, k, v, t, keep)


def _tensors(given: Inputs) -> tuple[Tensor | None, ...]:
    return given.q, given.k, given.v, given.t, given.keep


def forward(given: Inputs, which: EdgeIndex) -> Found:
    inner = _in(wide(given.v.dtype), given)
    out, lse = _attended(inner, which)
    none = given.v.new_empty(0, 0, 0)
    return Found(out.to(given.v.dtype), lse, none, lse.new_empty(0, 0))


def backward(given: Inputs, found: Found, dout: Tensor, which: EdgeIndex) -> Grads:
    inner = _in(wide(given.v.dtype), given)
    leaves = [x.requires_grad_() for x in (inner.q, inner.k, inner.v, inner.t) if x is not None]
    with torch.enable_grad():
        again = _attended(inner, which)[0]
    grads = torch.autograd.grad(again, leaves, dout.to(again.dtype), allow_unused=True)
    whole = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)]
    q, k, v, *t = (g.to(given.v.dtype) for g in whole)
    return Grads(q, k, v, t[0] if t else None)
