"""No pairs: zeros."""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide

name = "empty"


def refuses(case: Case) -> str | None:
    return f"there are {case.work:,} pairs" if case.work else None


def cost(case: Case) -> float:
    return 0.0


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    lse = torch.full(q.shape[:3], -torch.inf, dtype=wide(q.dtype), device=q.device)
    return q.new_zeros(*q.shape[:3], case.dv), lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    bias, edge_bias = saved.terms.bias, saved.terms.edge_bias
    return Grads(
        torch.zeros_like(saved.q),
        torch.zeros_like(saved.k),
        torch.zeros_like(saved.v),
        None if bias is None else torch.zeros_like(bias),
        None if edge_bias is None else torch.zeros_like(edge_bias),
    )
