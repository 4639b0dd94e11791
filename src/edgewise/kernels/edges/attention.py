"""Softmax attention along edges: the inputs of a kernel and its results.

    out_i = Σ_e p_e (v_j + value_e),  p_e = exp(s_e) / Σ_{e' of i} exp(s_e'),  e = (i, j)

    dot       s_e = scale_e · scale · q_i·(k_j + key_e) + bias_e
    additive  s_e = Σ vector ⊙ f(q_i + k_j),  f(z) = max(z, 0) + slope · min(z, 0)

Additive scores without a vector are those of single numbers (GAT), with one those of GATv2.
Dropout multiplies weights after they are normalised. A kernel is a module with

    forward(inputs) → out, lse
    backward(inputs, out, lse, dout) → EdgeGrads
    products(inputs) → scale · q_i·(k_j + key_e) of each edge, for scores that are made of them
    products_backward(inputs, grad) → dq, dk and the gradient of the edges' keys

Forward passes run along the rows of the index, gradients along its columns: a pass that finds the
weights again and the gradient of each score, then sums of rows with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.index import EdgeIndex

TERMS = {  # of edges, by the last axes of their shape
    "edge_bias": "(b, g, e)",
    "edge_scale": "(b, g, e)",
    "edge_key": "(b, e, d)",
    "edge_value": "(b, e, dv)",
}


WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Dropout:
    """Weights are 0 with this chance, else divided by 1 - chance.

    Which ones depends on the seed, the head and the pair alone: every kernel drops the same pairs,
    in whatever order it takes them, and the backward pass finds them again.
    """

    chance: float
    seed: int

    @property
    def least(self) -> int:
        """Pairs whose hash is below are dropped."""
        return min(int(self.chance * 2**32), WORD)

    def keep(self, heads: int, i: Tensor, j: Tensor, kind: torch.dtype) -> Tensor:
        """(heads, ...): the factor of the weight of every pair (i, j) (...) of each head."""
        h = torch.arange(heads, device=i.device).view(-1, *(1,) * max(i.ndim, j.ndim))
        row = mixed(mixed((h + self.seed) & WORD) ^ i)
        return (mixed(row ^ j) >= self.least).to(kind) / (1 - self.chance)


def mixed(x: Tensor) -> Tensor:
    """A hash of 32 bits, in int64: Wellons' lowbias32."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & WORD
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & WORD
    return x ^ (x >> 16)


@dataclass(frozen=True, eq=False)
class Inputs:
    """q (b, g, n, d), k (b, m, d) and v (b, m, dv): g heads of queries share a head of keys.

    `slope` is None for dot products; `vector` is (b, 1, d).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    index: EdgeIndex
    scale: float = 1.0
    slope: float | None = None
    vector: Tensor | None = None
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    drop: Dropout | None = None

    @property
    def kind(self) -> int:
        """0 for dot products; of additive scores 1 for numbers, 2 with a vector."""
        if self.slope is None:
            return 0
        return 1 if self.vector is None else 2

    @property
    def heads(self) -> tuple[int, int]:
        return self.q.shape[0], self.q.shape[1]

    def with_scores(self, scores: Tensor) -> Inputs:
        """The same where scores (b, g, e) are known: queries and keys have no features left."""
        terms = {name: x for name, x in self.terms.items() if name == "edge_value"}
        q, k = self.q[..., :0], self.k[..., :0]
        return replace(self, q=q, k=k, scale=1.0, terms={**terms, "edge_bias": scores})


@dataclass(frozen=True, eq=False)
class EdgeGrads:
    """`terms` holds the gradient of each term among the inputs."""

    q: Tensor
    k: Tensor
    v: Tensor
    vector: Tensor | None = None
    terms: Mapping[str, Tensor] = field(default_factory=dict)


def additive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    vector: Tensor | None,
    seed: Tensor | None,
    slope: float,
    dropout: float,
    index: EdgeIndex,
) -> Inputs:
    """Of the operator, whose heads share nothing: q is (b, n, d), vector (b, 1, d)."""
    drop = None if seed is None else Dropout(dropout, int(seed))
    return Inputs(q[:, None], k, v, index, slope=slope, vector=vector, drop=drop)


def additive_operations(kernel: ModuleType) -> dict[str, Callable[..., Any]]:
    """The operators of additive attention on a kernel that needs nothing else for gradients."""

    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        out, lse = (x[:, 0] for x in kernel.forward(additive(*arguments)))
        return out, lse, out.new_empty(0, 0, 0), lse.new_empty(0, 0)

    def backward(
        dout: Tensor, out: Tensor, lse: Tensor, plus: Tensor, share: Tensor, *arguments: Any
    ) -> tuple[Tensor, ...]:
        inputs = additive(*arguments)
        found = kernel.backward(inputs, out[:, None], lse[:, None], dout[:, None])
        vector = inputs.v.new_empty(0) if found.vector is None else found.vector
        return found.q[:, 0], found.k, found.v, vector

    return {"additive_attention": forward, "additive_attention_backward": backward}
