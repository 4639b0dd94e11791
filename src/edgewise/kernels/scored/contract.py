"""What a kernel of scored attention is asked to do.

    out_i = Σ_e p_e v_j,  p_e = exp(s_e) / Σ_{e' of i} exp(s_e'),  e = (i, j)

    given           s_e = t_e
    additive        s_e = f(q_i + k_j), one number each                       (GAT)
    of sums         s_e = t · f(q_i + k_j), element by element                (GATv2)
    multiplicative  s_e = Σ q_i ⊙ k_j ⊙ t_e                                   (Exphormer)

f(z) = max(z, 0) + slope · min(z, 0). Kernels see q (b, n, d), k (b, m, d), v (b, m, dv), where b
counts the batch and the heads; t is (b, e, 1), nothing, (b, 1, d) or (b, e, d). `keep` (b, e)
multiplies the weights after they are normalised: dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from edgewise.kernels.aggregate.index import Gather

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


class Implementation(Protocol):
    """A kernel: the module of its name. `lse` is -∞ in rows without edges."""

    @property
    def name(self) -> str: ...
    def refuses(self, dtype: torch.dtype, device: str, widest: int) -> str | None: ...
    def forward(self, given: Inputs, which: Gather) -> tuple[Tensor, Tensor]: ...
    def backward(
        self, given: Inputs, out: Tensor, lse: Tensor, dout: Tensor, which: Gather
    ) -> Grads: ...
