"""Attention with a vector on each edge: its contract, and the definition in plain torch.

    s_e = q_i·k_j + a_i·x_e + b_j·x_e + bias_e,  p = softmax of s over the edges e = (i, j) of i
    out_i = [Σ_e p_e v_j, Σ_e p_e x_e]

A projection of edges needs no row of its own per edge and head: q_i·(W x_e) = (Wᵀq_i)·x_e, and
Σ_e p_e W x_e = W Σ_e p_e x_e; so `a` is Wᵀq, and `b` the same of keys. Heads lie side by side in
each row: (batch, rows, heads, features); the vectors of edges, in the order of the index's rows,
are those of one head or of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.attention import Dropout
from edgewise.kernels.edges.index import EdgeIndex, SplitCSR
from edgewise.kernels.edges.reference import wide


@dataclass(frozen=True, eq=False)
class RelationalInputs:
    """q (c, n, h, d), k (c, m, h, d), v (c, m, h, dv), x (c, e, 1 or h, w), and perhaps a
    (c, n, h, w), b (c, m, h, w) and bias (c, e, h); `values` if the sum of vectors is wanted.

    The output is (c, n, h · dv + h · w): the sums of values of all heads, then those of vectors.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    a: Tensor | None
    b: Tensor | None
    bias: Tensor | None
    seed: Tensor | None
    values: bool
    dropout: float
    index: EdgeIndex

    @property
    def heads(self) -> int:
        return int(self.q.shape[2])

    @property
    def out_width(self) -> int:
        """Features of the output of each head."""
        return int(self.v.shape[-1]) + int(self.x.shape[-1]) * self.values

    @property
    def drop(self) -> Dropout | None:
        return None if self.seed is None else Dropout(self.dropout, int(self.seed))

    def keep(self, kind: torch.dtype) -> Tensor | float:
        """The factor of each weight, (c, e, h): heads are counted on from batch to batch."""
        if (drop := self.drop) is None:
            return 1.0
        i, j = self.index.rows.ids.long(), self.index.rows.index.long()
        found = drop.keep(len(self.q) * self.heads, i, j, kind)
        return found.view(len(self.q), self.heads, -1).transpose(1, 2)

    def parts(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of values (c, n, h, dv) of an output, and those of vectors (c, n, h, w or 0)."""
        width = self.heads * int(self.v.shape[-1])
        both = out[..., :width], out[..., width:]
        sums, vectors = (x.unflatten(-1, (self.heads, x.shape[-1] // self.heads)) for x in both)
        return sums, vectors


class _EdgeReads:
    """What edges read, in the precision of sums."""

    def __init__(self, inputs: RelationalInputs) -> None:
        self.inputs, self.kind = inputs, wide(inputs.v.dtype)
        i, j = self.i, self.j = inputs.index.rows.ids.long(), inputs.index.rows.index.long()
        self.q, self.a = self._at(inputs.q, i), self._at(inputs.a, i)
        self.k, self.b, self.v = (self._at(t, j) for t in (inputs.k, inputs.b, inputs.v))
        self.x = inputs.x.to(self.kind).expand(-1, -1, inputs.heads, -1)
        score = (self.q * self.k).sum(-1) + ((self.a + self.b) * self.x).sum(-1)
        self.score = score if inputs.bias is None else score + inputs.bias.to(self.kind)

    def _at(self, x: Tensor | None, rows: Tensor) -> Tensor:
        none = self.inputs.x.new_zeros(1, 1, 1, 1, dtype=self.kind)
        return none if x is None else x.to(self.kind)[:, rows]

    def rows(self, each: Tensor) -> Tensor:
        """The sum of (c, e, h, features) over the edges of each query."""
        return self._sum(each, self.i, self.inputs.q.shape[1])

    def columns(self, each: Tensor) -> Tensor:
        return self._sum(each, self.j, self.inputs.k.shape[1])

    def _sum(self, each: Tensor, at: Tensor, rows: int) -> Tensor:
        total = each.new_zeros(each.shape[0], rows, *each.shape[2:])
        return total.index_add_(1, at, each)


def forward(inputs: RelationalInputs) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp (c, n, h)."""
    edges = _EdgeReads(inputs)
    c, n, h, _ = inputs.q.shape
    none = edges.score.new_full((c, n, h), -torch.inf)
    top = none.scatter_reduce(1, edges.i[:, None].expand(c, -1, h), edges.score, "amax")
    top = torch.where(top == -torch.inf, 0, top)
    p = torch.exp(edges.score - top[:, edges.i])
    total = edges.rows(p[..., None])[..., 0]
    used = (p * inputs.keep(edges.kind))[..., None]
    out = [edges.rows(used * edges.v)] + ([edges.rows(used * edges.x)] if inputs.values else [])
    share = torch.where(total == 0, 1, total)[..., None]
    joined = torch.cat([(part / share).flatten(2) for part in out], -1)
    return joined.to(inputs.v.dtype), torch.log(total) + top


def backward(
    inputs: RelationalInputs, out: Tensor, lse: Tensor, dout: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor]:
    """The gradients of q, k, v, x, a, b and of each score."""
    edges, kind = _EdgeReads(inputs), inputs.v.dtype
    g, gx = (t[:, edges.i] for t in inputs.parts(dout.to(edges.kind)))
    each = dout.to(edges.kind) * out.to(edges.kind)
    delta = torch.cat(inputs.parts(each), -1).sum(-1)
    p = torch.exp(edges.score - lse[:, edges.i])
    used, dp = p * inputs.keep(edges.kind), (g * edges.v).sum(-1)
    if inputs.values:
        dp = dp + (gx * edges.x).sum(-1)
    ds = (used * dp - p * delta[:, edges.i])[..., None]
    dx = (ds * (edges.a + edges.b)).expand(edges.x.shape)
    dx = dx + used[..., None] * gx if inputs.values else dx
    dx = dx if inputs.x.shape[2] > 1 else dx.sum(2, keepdim=True)
    da = None if inputs.a is None else edges.rows(ds * edges.x).to(kind)
    db = None if inputs.b is None else edges.columns(ds * edges.x).to(kind)
    dq, dk = edges.rows(ds * edges.k).to(kind), edges.columns(ds * edges.q).to(kind)
    dv = edges.columns(used[..., None] * g).to(kind)
    return dq, dk, dv, dx.to(inputs.x.dtype), da, db, ds[..., 0]


def steps_of(x: Tensor) -> tuple[int, int]:
    """How far two rows are apart, and two heads; 0 where all share one."""
    return x.stride(1), 0 if x.shape[2] == 1 else x.stride(2)


def merged(inputs: RelationalInputs, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """The results of segments from those of their pieces."""
    if not inputs.index.rows.is_split:
        return out, lse
    by_head = torch.cat(inputs.parts(out), -1).transpose(1, 2).contiguous()
    lse, found = inputs.index.rows.merged(lse.transpose(1, 2).contiguous(), by_head)
    width = inputs.v.shape[-1]
    both = found.transpose(1, 2).split([width, found.shape[-1] - width], -1)
    return torch.cat([x.flatten(2) for x in both], -1), lse.transpose(1, 2)


def summed(csr: SplitCSR, x: Tensor, kind: torch.dtype) -> Tensor:
    """From (batch, results, heads, features) to that of segments."""
    return (csr.summed(x.flatten(2)).unflatten(2, x.shape[2:]) if csr.is_split else x).to(kind)


def operations(
    forward: Callable[..., Any], backward: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    """The operators that the functions of a kernel are; what is absent has an empty gradient."""

    def attention(*arguments: Any) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = forward(RelationalInputs(*arguments))
        return found

    def gradients(dout: Tensor, out: Tensor, lse: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        inputs = RelationalInputs(*arguments)
        *found, ds = backward(inputs, out, lse, dout)
        found.append(None if inputs.bias is None else ds.to(inputs.bias.dtype))
        return tuple(inputs.v.new_empty(0) if x is None else x for x in found)

    return {"relational_attention": attention, "relational_attention_backward": gradients}


OPERATIONS = operations(forward, backward)
