"""Arbitrary edges in plain torch, where neither numba nor Triton is there: gather and scatter.

Every edge gets its own copy of a key and a value, so the size is limited.
"""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.function import row_dots

name = "gather"
PAIR = 60.0  # the time of one edge in pairs of a dense product
LIMIT = 1 << 28


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    numbers = case.work * max(case.d, case.dv)
    if numbers > LIMIT:
        return f"it would copy {numbers:,} numbers to the edges, more than {LIMIT:,}"
    return case.lacks("edge_bias", "dropout")


def cost(case: Case) -> float:
    return PAIR * case.work + 1e5


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    kind = wide(q.dtype)
    i, j = case.graph.edges(case.n, case.m).to(q.device)
    score = _scores(case, q, k, terms, i, j)
    none = score.new_full(q.shape[:3], -torch.inf)
    top = none.scatter_reduce(2, i.expand(*score.shape[:2], -1), score, "amax")
    top = torch.where(top == -torch.inf, 0, top)
    p = torch.exp(score - top[..., i])
    total = torch.zeros_like(top).index_add_(2, i, p)
    p = p if terms.keep is None else p * terms.keep.to(kind)
    values = p[..., None] * v[:, None, j].to(kind)
    out = values.new_zeros(*q.shape[:3], case.dv).index_add_(2, i, values)
    out = out / torch.where(total == 0, 1, total)[..., None]
    return out.to(q.dtype), torch.log(total) + top


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    kind, terms = wide(dout.dtype), saved.terms
    i, j = case.graph.edges(case.n, case.m).to(dout.device)
    p = torch.exp(_scores(case, saved.q, saved.k, terms, i, j) - saved.lse[..., i])
    kept = p if terms.keep is None else p * terms.keep.to(kind)
    g = dout.to(kind)[:, :, i]
    dp = (g * saved.v[:, None, j].to(kind)).sum(-1)
    ds = kept * dp - p * row_dots(dout, saved.out)[..., i]
    rows, columns = (x.new_zeros(x.shape, dtype=kind) for x in (saved.q, saved.k))
    dq = rows.index_add_(2, i, (ds * case.scale)[..., None] * saved.k[:, None, j].to(kind))
    pulled = ((ds * case.scale)[..., None] * saved.q[:, :, i].to(kind)).sum(1)
    dk = columns.index_add_(1, j, pulled)
    dv = saved.v.new_zeros(saved.v.shape, dtype=kind)
    dv = dv.index_add_(1, j, (kept[..., None] * g).sum(1))
    bias = terms.edge_bias
    dbias = None if bias is None else ds.to(bias.dtype)
    dq, dk, dv = (x.to(dout.dtype) for x in (dq, dk, dv))
    return Grads(dq, dk, dv, edge_bias=dbias)


def _scores(case: Case, q: Tensor, k: Tensor, terms: Terms, i: Tensor, j: Tensor) -> Tensor:
    kind = wide(q.dtype)
    score = (q[:, :, i].to(kind) * k[:, None, j].to(kind)).sum(-1) * case.scale
    return score if terms.edge_bias is None else score + terms.edge_bias.to(kind)
