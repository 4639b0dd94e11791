"""All pairs, or all pairs that do not look ahead: PyTorch's fused attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.kernels.attention.autograd import refuse_forward_mode
from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms
from edgewise.kernels.attention.flash import (
    flash,
    flash_backward,
    fused,
    fuses_groups,
)
from edgewise.kernels.attention.materialised import NUMBERS
from edgewise.scores.evaluate import PairScores
from edgewise.scores.nodes import ONE, H, Number, S, replaced, walk
from edgewise.scores.primitives import derivative

if TYPE_CHECKING:
    from edgewise.kernels.attention.calls.layout import Layout

name = "dense"
TILE = 64  # queries
WALK = 2500  # the time to walk past one key after another, in pairs: some kernels split no keys


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    if not case.is_full and not case.is_causal:
        return f"the graph is neither full nor causal: {case.density:.2%} of all pairs"
    if "lse" in case.features and case.features & {"bias", "score"}:
        return "with a bias it does not give the log-sum-exp"
    if "lse" in case.features and case.device == "cuda" and case.dtype.itemsize > 2:
        return "on a GPU it gives the log-sum-exp in float16 and bfloat16 only"
    if "score" in case.features and (reason := _not_a_bias(case)) is not None:
        return reason
    return case.lacks("bias", "score")


def _not_a_bias(case: Case) -> str | None:
    """Why a score is not materialised as a bias."""
    if derivative(case.score, S) != ONE:
        return "its score does more than add to the dot product"
    if case.device != "cpu" or case.dtype.itemsize < 4:
        return "it takes a score on a CPU only, in float32 and float64"
    if case.work > NUMBERS:
        return f"its score would be stored for each of {case.work:,} pairs"
    return None


def cost(case: Case) -> float:
    pairs = float(case.b * case.g * case.pairs) * (2 if "score" in case.features else 1)
    if case.device != "cuda":
        return pairs
    if "bias" in case.features:  # by tiles, whose keys are not split
        return max(float(case.b * case.g * case.m * max(case.n, TILE)), WALK * case.m)
    # of one query PyTorch's flash attention splits the keys, where its dispatch is left to choose
    splits = case.n == 1 and not case.features and (case.g == 1 or takes_groups(case))
    return pairs if splits else max(pairs, WALK * case.m)


def bind(case: Case, layout: Layout) -> Callable[..., Tensor]:
    """The output alone, through PyTorch's own dispatch and autograd."""
    if not case.features and len(layout.lead) in (1, 2) and (case.g == 1 or takes_groups(case)):
        causal, grouped = not case.is_full, case.g > 1

        def direct(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
            if forward_ad._current_level >= 0:
                refuse_forward_mode(name, q, k, v)
            if q.ndim == 4:
                return fused(q, k, v, case.scale, causal=causal, grouped=grouped)
            q, k, v = q[None], k[None], v[None]
            return fused(q, k, v, case.scale, causal=causal, grouped=grouped)[0]

        return direct

    def call(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
        out = attend(case, *layout.tensors(q, k, v), terms)
        return out.reshape(*layout.lead, case.n, case.dv)

    return call


def takes_groups(case: Case) -> bool:
    return case.device == "cuda" and fuses_groups(case.dtype, case.d, case.dv)


def attend(
    case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms, dropout: float = 0.0
) -> Tensor:
    refuse_forward_mode(name, q, k, v, terms.bias, *terms.tables)
    if _is_packed(case):
        out = fused(_packed(q), k[:, None], v[:, None], case.scale, dropout=dropout)
        return out.reshape(*q.shape[:-1], case.dv)
    keys, values = (x[:, None].expand(-1, case.g, -1, -1) for x in (k, v))
    causal, shape = not case.is_full, q.shape[:-1]
    bias = terms.bias
    if "score" in case.features:
        added = _added(case, terms, q)
        if case.g == 1:  # the same in every sample: heads on an axis of their own
            heads = (-1, len(added))
            q, keys, values = (x.reshape(*heads, *x.shape[2:]) for x in (q, keys, values))
            bias = None if bias is None else bias.reshape(*heads, *bias.shape[2:])
            added = added[None]
        else:
            added = added.repeat(case.b * case.g // len(added), 1, 1).unflatten(0, (case.b, case.g))
        bias = added if bias is None else added + bias
    bias = _causal_bias(case, bias) if causal and bias is not None else bias
    causal = causal and bias is None
    out = fused(q, keys, values, case.scale, causal=causal, mask=bias, dropout=dropout)
    return out.reshape(*shape, case.dv)


def _is_packed(case: Case) -> bool:
    """Whether heads that share keys are rows of one product: each key is read once for all."""
    return case.g > 1 and case.is_full and not case.features & {"bias", "score"}


def _packed(x: Tensor) -> Tensor:
    return x.reshape(len(x), 1, -1, x.shape[-1])


def _added(case: Case, terms: Terms, q: Tensor) -> Tensor:
    """What the score adds, (heads, n, m), for as many heads as have tables of their own."""
    heads = math.lcm(*(len(table) for table in terms.tables))
    heads = case.b * case.g if H in walk(case.score) or case.b * case.g % heads else heads
    i = torch.arange(case.n, device=q.device)[:, None]
    j = torch.arange(case.m, device=q.device)
    h = torch.arange(heads, device=q.device)[:, None, None]
    pairs = PairScores(q.new_zeros(()), i, j, h, terms.tables)
    added = pairs[replaced(case.score, {S: Number(0.0)})].to(q.dtype)
    return added.expand(heads, case.n, case.m)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    causal = not case.is_full
    if _is_packed(case):
        out, lse = flash(_packed(q), k[:, None], v[:, None], case.scale, mask=None)
        return out.reshape(*q.shape[:-1], case.dv), lse.reshape(q.shape[:-1])
    keys, values = (x[:, None].expand(-1, case.g, -1, -1) for x in (k, v))
    mask = _mask(case, terms, causal)
    return flash(q, keys, values, case.scale, causal=causal and mask is None, mask=mask)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    causal = not case.is_full
    if _is_packed(case):
        rows = (_packed(saved.q), saved.k[:, None], saved.v[:, None], _packed(saved.out))
        lse = saved.lse.reshape(case.b, 1, -1)
        dq, dk, dv = flash_backward(_packed(dout), (*rows, lse), case.scale, mask=None)
        return Grads(dq.reshape(saved.q.shape), dk[:, 0], dv[:, 0])
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
