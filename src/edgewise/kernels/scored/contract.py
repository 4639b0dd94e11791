"""What a kernel of scored attention is asked to do.

    out_i = Σ_e p_e v_j,  p_e = exp(s_e) / Σ_{e' of i} exp(s_e'),  e = (i, j)

    given           s_e = t_e
    additive        s_e = f(q_i + k_j), one number each                       (GAT)
    of sums         s_e = t · f(q_i + k_j), element by element                (GATv2)
    multiplicative  s_e = Σ q_i ⊙ k_j ⊙ t_e                                   (Exphormer)

f(z) = max(z, 0) + slope · min(z, 0). Kernels see q (b, n, d), k (b, m, d), v (b, m, dv), where b
counts the batch and the heads; t is (b, e, 1), nothing, (b, 1, d) or (b, e, d). `keep` (b, e)
multiplies the weights after they are normalised: dropout.

On a GPU the gradient of an additive q needs no second pass over the edges. With z = q_i + k_j,
f'(z) = slope + (1 - slope)·[z > 0], ds_e = p_e (g_i·v_j - g_i·out_i) and Σ ds_e = 0,

    dq_i = Σ_e f'(z_e) ds_e = (1 - slope) g_i·(plus_i - share_i out_i),
    plus_i = Σ_{z_e > 0} p_e v_j,  share_i = Σ_{z_e > 0} p_e,

so the forward pass keeps `plus` and `share`. A CPU would do twice the work for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from edgewise.kernels.edges.index import EdgeIndex
from edgewise.kernels.flat import Heads, heads_of

KINDS = ("given", "additive", "of sums", "multiplicative")


@dataclass(frozen=True, eq=False)
class Inputs:
    kind: str
    slope: float
    q: Tensor
    k: Tensor
    v: Tensor
    t: Tensor | None
    keep: Tensor | None


@dataclass(frozen=True, eq=False)
class Grads:
    q: Tensor
    k: Tensor
    v: Tensor
    t: Tensor | None


@dataclass(frozen=True, eq=False)
class Found:
    """What a forward pass gives: `lse` (b, n) is -∞ in rows without edges.

    `plus` (b, n, dv) and `share` (b, n) are those of additive scores on a GPU, else empty.
    """

    out: Tensor
    lse: Tensor
    plus: Tensor
    share: Tensor


class Implementation(Protocol):
    """A kernel: the module of its name."""

    @property
    def name(self) -> str: ...
    def refuses(self, dtype: torch.dtype, device: str, widest: int) -> str | None: ...
    def forward(self, given: Inputs, which: EdgeIndex) -> Found: ...
    def backward(self, given: Inputs, found: Found, dout: Tensor, which: EdgeIndex) -> Grads: ...


def heads_in(q: Tensor, k: Tensor, v: Tensor) -> Heads:
    """How heads go together on a CPU, by which results are laid out."""
    return heads_of(v.shape[0], 1, q, k, v)
