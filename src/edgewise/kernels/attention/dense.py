"""All pairs, or all pairs that do not look ahead: PyTorch's fused attention."""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms
from edgewise.kernels.attention.derivatives import once, refuse_forward_mode
from edgewise.kernels.attention.flash import flash, flash_backward, fused

name = "dense"


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    if not case.is_full and not case.is_causal:
        return f"the graph is neither full nor causal: {case.density:.2%} of all pairs"
    if {"bias", "lse"} <= case.features:
        return "with a bias it does not give the log-sum-exp"
    if "lse" in case.features and case.device == "cuda" and case.dtype.itemsize > 2:
        return "on a GPU it gives the log-sum-exp in float16 and bfloat16 only"
    return case.lacks("bias")


def cost(case: Case) -> float:
    return float(case.b * case.g * case.pairs)


def attend(
    case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms, dropout: float = 0.0
) -> Tensor:
    """The output alone, through PyTorch's own dispatch and autograd."""
    refuse_forward_mode(name, q, k, v, terms.bias)
    keys, values = (x[:, None].expand(-1, case.g, -1, -1) for x in (k, v))
    causal = not case.is_full
    bias = _causal_bias(case, terms.bias) if causal and terms.bias is not None else terms.bias
    causal = causal and bias is None
    out = fused(q, keys, values, case.scale, causal=causal, mask=bias, dropout=dropout)
    return once(out, name)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    causal = not case.is_full
    keys, values = (x[:, None].expand(-1, case.g, -1, -1) for x in (k, v))
    mask = _mask(case, terms, causal)
    return flash(q, keys, values, case.scale, causal=causal and mask is None, mask=mask)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    causal = not case.is_full
    mask = _mask(case, saved.terms, causal)
    keys, values = (x[:, None].expand(-1, case.g, -1, -1) for x in (saved.k, saved.v))
    state = (saved.q, keys, values, saved.out, saved.lse)
    dq, dk, dv = flash_backward(dout, state, case.scale, causal=causal and mask is None, mask=mask)
    return Grads(dq, dk.sum(1), dv.sum(1))


def _mask(case: Case, terms: Terms, causal: bool) -> Tensor | None:
    if terms.bias is None:
        return None
    bias = _causal_bias(case, terms.bias) if causal else terms.bias
    return bias.expand(case.b, case.g, case.n, case.m)


def _causal_bias(case: Case, bias: Tensor) -> Tensor:
    ahead = torch.ones(case.n, case.m, dtype=torch.bool, device=bias.device).triu(1)
    return bias.masked_fill(ahead, -torch.inf)
