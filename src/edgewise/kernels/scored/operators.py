"""Scored attention as an operator of torch, with its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.index import EdgeIndex
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.flat import Heads
from edgewise.kernels.scored import numba_scored, reference, triton_scored
from edgewise.kernels.scored.contract import Found, Implementation, Inputs, heads_in

IMPLEMENTATIONS: tuple[Implementation, ...] = (numba_scored, triton_scored, reference)


@lru_cache(maxsize=64)
def choose(
    dtype: torch.dtype, device: str, widest: int
) -> tuple[Implementation, tuple[tuple[str, str], ...]]:
    """The first kernel that accepts, and why not those before it."""
    refusals: list[tuple[str, str]] = []
    for implementation in IMPLEMENTATIONS:
        reason = implementation.refuses(dtype, device, widest)
        if reason is None:
            return implementation, tuple(refusals)
        refusals.append((implementation.name, reason))
    raise AssertionError("the reference takes every case")


def scored(
    kind: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    which: EdgeIndex,
    *,
    t: Tensor | None = None,
    slope: float = 1.0,
    keep: Tensor | None = None,
) -> Tensor:
    """Attention along the entries of `which` with one of the scores of `contract.KINDS`.

    >>> import torch
    >>> from edgewise.kernels.edges import edge_index
    >>> which = edge_index(torch.tensor([0, 0]), torch.tensor([0, 1]), 1, 2)
    >>> l, r = torch.zeros(1, 1, 1), torch.tensor([[[0.0], [-1e9]]])
    >>> scored("additive", l, r, torch.tensor([[[3.0], [4.0]]]), which).flatten().tolist()
    [3.0]
    """
    return scored_attention(kind, slope, q, k, v, t, keep, which.tensors)[0]


def _kernel(q: Tensor, v: Tensor) -> Implementation:
    return choose(v.dtype, v.device.type, int(max(q.shape[2], v.shape[2])))[0]


def _heads(q: Tensor, k: Tensor, v: Tensor) -> Heads:
    """In which order results are laid out."""
    return Heads(v.shape[0], 1, False) if _kernel(q, v) is reference else heads_in(q, k, v)


@torch.library.custom_op("edgewise::scored_attention", mutates_args=())
def scored_attention(
    kind: str,
    slope: float,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    t: Tensor | None,
    keep: Tensor | None,
    which: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four of `Found`."""
    found = _kernel(q, v).forward(Inputs(kind, slope, q, k, v, t, keep), EdgeIndex.of(which))
    return found.out, found.lse, found.plus, found.share


@scored_attention.register_fake
def _(
    kind: str,
    slope: float,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    t: Tensor | None,
    keep: Tensor | None,
    which: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, heads = which[0].shape[0] - 1, _heads(q, k, v)
    out = heads.empty(n, v.shape[2], v)[:, 0]
    lse = v.new_empty(v.shape[0], n, dtype=wide(v.dtype))
    if _kernel(q, v) is numba_scored:
        lse = heads.empty(n, 1, v)[:, 0, :, 0].to(wide(v.dtype))
    if kind != "additive" or _kernel(q, v) is not triton_scored:
        return out, lse, v.new_empty(0, 0, 0), lse.new_empty(0, 0)
    return out, lse, torch.empty_like(out), torch.empty_like(lse)


@torch.library.custom_op("edgewise::scored_attention_backward", mutates_args=())
def scored_attention_backward(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    plus: Tensor,
    share: Tensor,
    kind: str,
    slope: float,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    t: Tensor | None,
    keep: Tensor | None,
    which: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given = Inputs(kind, slope, q, k, v, t, keep)
    saved = Found(out, lse, plus, share)
    found = _kernel(q, v).backward(given, saved, dout, EdgeIndex.of(which))
    return found.q, found.k, found.v, v.new_empty(0) if found.t is None else found.t


@scored_attention_backward.register_fake
def _(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    plus: Tensor,
    share: Tensor,
    kind: str,
    slope: float,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    t: Tensor | None,
    keep: Tensor | None,
    which: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    extra = v.new_empty(0) if t is None else t.new_empty(t.shape)
    heads = _heads(q, k, v)
    dq, dk, dv = (heads.empty(x.shape[1], x.shape[2], x)[:, 0] for x in (q, k, v))
    return dq, dk, dv, extra


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.kind, ctx.slope, *tensors, which = inputs
    ctx.save_for_backward(*output, *tensors, *which)
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx: Any, dout: Tensor, *_: Tensor) -> tuple[Any, ...]:
    saved, tensors = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
    which = list(tensors[5:])
    dq, dk, dv, dt = scored_attention_backward(
        dout, *saved, ctx.kind, ctx.slope, *tensors[:5], which
    )
    given = None if tensors[3] is None else dt
    return None, None, dq, dk, dv, given, None, [None] * len(which)


scored_attention.register_autograd(_gradients, setup_context=_keep)
