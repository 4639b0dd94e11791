"""No pairs: zeros."""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.terms import TermGrads

name = "empty"


def refuses(case: Case) -> str | None:
    return f"there are {case.work:,} pairs" if case.work else None


def cost(case: Case) -> float:
    return 0.0


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    lse = torch.full(q.shape[:3], -torch.inf, dtype=wide(q.dtype), device=q.device)
    return q.new_zeros(*q.shape[:3], case.dv), lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    dq, dk, dv = (torch.zeros_like(x) for x in (saved.q, saved.k, saved.v))
    return Grads(dq, dk, dv, TermGrads(case, saved.terms).terms())
