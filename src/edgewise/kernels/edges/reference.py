"""Operations along edges in plain torch, gather and scatter: they take every case, on any device,
and define the results.

Edges are gathered some at a time, so that no more than that is ever materialised.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from edgewise.kernels.edges.attention import EdgeGrads, Inputs
from edgewise.kernels.edges.index import EdgeIndex, Grouping

CHUNK = 1 << 22  # numbers gathered at a time
EDGE_CHUNK = 1 << 24  # of all heads in attention, which stores a score per edge
BLOCK = 1 << 13  # rows that stay in the cache from being gathered to being written


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of sums of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _chunks(index: EdgeIndex, d: int) -> list[tuple[Tensor, Tensor, slice]]:
    step, ids, rows = max(CHUNK // max(d, 1), 1), index.rows.ids, index.rows.index
    parts = (slice(at, at + step) for at in range(0, index.edges, step))
    return [(ids[part], rows[part], part) for part in parts]


def segment_sum(
    x: Tensor, scale: Tensor | None, column_scale: Tensor | None, index: EdgeIndex
) -> Tensor:
    kind = wide(x.dtype)
    found = x.new_zeros(index.rows.segments, x.shape[1], dtype=kind)
    for ids, rows, part in _chunks(index, x.shape[1]):
        read = x.index_select(0, rows).to(kind)
        if scale is not None:
            read = read * scale[part, None].to(kind)
        found.index_add_(0, ids, read)
    return found.to(x.dtype)


def edge_dots(y: Tensor, x: Tensor, index: EdgeIndex) -> Tensor:
    kind = wide(x.dtype)
    found = x.new_empty(index.edges)
    for ids, rows, part in _chunks(index, x.shape[1]):
        pair = y.index_select(0, ids).to(kind), x.index_select(0, rows).to(kind)
        found[part] = (pair[0] * pair[1]).sum(-1).to(x.dtype)
    return found


def segment_extreme(x: Tensor, largest: bool, index: EdgeIndex) -> tuple[Tensor, Tensor]:
    """Empty segments have -∞ (∞ for the smallest), and no edge has it."""
    worst = -torch.inf if largest else torch.inf
    found = x.new_full((index.rows.segments, x.shape[1]), worst)
    for ids, rows, _ in _chunks(index, x.shape[1]):
        places = ids.long()[:, None].expand(-1, x.shape[1])
        kind = "amax" if largest else "amin"
        found.scatter_reduce_(0, places, x.index_select(0, rows), kind)
    ties = torch.zeros_like(found, dtype=wide(x.dtype))
    for ids, rows, _ in _chunks(index, x.shape[1]):
        same = x.index_select(0, rows) == found.index_select(0, ids)
        ties.index_add_(0, ids, same.to(ties.dtype))
    return found, ties.to(x.dtype)


def equal_sum(a: Tensor, x: Tensor, y: Tensor, index: EdgeIndex) -> Tensor:
    kind = wide(a.dtype)
    found = a.new_zeros(index.rows.segments, a.shape[1], dtype=kind)
    for ids, rows, _ in _chunks(index, x.shape[1]):
        same = x.index_select(0, rows) == y.index_select(0, ids)
        found.index_add_(0, ids, torch.where(same, a.index_select(0, rows), 0).to(kind))
    return found.to(a.dtype)


def _blocks(groups: Grouping) -> Iterator[tuple[int, slice]]:
    """A member, and places in the order of the groups."""
    for member, (low, high) in enumerate(pairwise(groups.ptr.tolist())):
        for at in range(low, high, BLOCK):
            yield member, slice(at, min(at + BLOCK, high))


def grouped_linear(x: Tensor, family: Tensor, groups: Grouping) -> Tensor:
    """Products one after another, then each where its row is: to write them there is slower.
    Members of few rows on a CPU are multiplied together, as if they had equally many."""
    padded = groups.padded if x.device.type == "cpu" else None
    if padded is not None:
        return _linear_of_padded(x, family.mT, *padded[:2])
    found, matrices = x.new_empty(x.shape[0], family.shape[1]), family.mT
    for member, part in _blocks(groups):
        torch.mm(_members_rows(x, groups, part), matrices[member], out=found[part])
    return found if groups.is_sorted else found.index_select(0, groups.places)


def _members_rows(x: Tensor, groups: Grouping, part: slice) -> Tensor:
    return x[part] if groups.is_sorted else x.index_select(0, groups.order[part])


def _linear_of_padded(x: Tensor, matrices: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    found = x.new_empty(*rows.shape, matrices.shape[2])
    for part in _members(rows):
        read = _side_by_side(x, rows[part])
        torch.bmm(read, matrices[part], out=found[part])
    return found.flatten(0, 1).index_select(0, places)


def _members(rows: Tensor) -> Iterator[slice]:
    """Some members at a time, whose rows stay in the cache."""
    step = max(BLOCK // rows.shape[1], 1)
    return (slice(at, at + step) for at in range(0, len(rows), step))


def _side_by_side(x: Tensor, rows: Tensor) -> Tensor:
    return x.index_select(0, rows.flatten()).view(*rows.shape, x.shape[1])


def grouped_outer(y: Tensor, x: Tensor, groups: Grouping) -> Tensor:
    padded = groups.padded if x.device.type == "cpu" else None
    if padded is not None:
        rows, _, padding = padded
        out = x.new_empty(groups.members, y.shape[1], x.shape[1])
        for part in _members(rows):
            left = _side_by_side(y, rows[part]).masked_fill_(padding[part][..., None], 0)
            right = _side_by_side(x, rows[part]).masked_fill_(padding[part][..., None], 0)
            torch.bmm(left.mT, right, out=out[part])
        return out
    out = x.new_zeros(groups.members, y.shape[1], x.shape[1])
    for member, part in _blocks(groups):
        left, right = (_members_rows(rows, groups, part) for rows in (y, x))
        torch.addmm(out[member], left.T, right, out=out[member])
    return out


class _Edges:
    """The edges of a call, and what they read, in the precision of sums."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.kind = inputs, wide(inputs.v.dtype)
        self.i, self.j = inputs.index.rows.ids.long(), inputs.index.rows.index.long()

    def parts(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Runs of edges: their place, their i and their j."""
        b, g = self.inputs.heads
        width = max(self.inputs.q.shape[-1], self.inputs.v.shape[-1])
        step = max(EDGE_CHUNK // max(b * g * width, 1), 1)
        for at in range(0, len(self.i), step):
            part = slice(at, at + step)
            yield part, self.i[part], self.j[part]

    def queries(self, i: Tensor) -> Tensor:
        return self.inputs.q[:, :, i].to(self.kind)

    def keys(self, part: slice, j: Tensor) -> Tensor:
        return self._gathered(self.inputs.k, "edge_key", part, j)

    def values(self, part: slice, j: Tensor) -> Tensor:
        return self._gathered(self.inputs.v, "edge_value", part, j)

    def _gathered(self, x: Tensor, name: str, part: slice, j: Tensor) -> Tensor:
        rows, term = x[:, None, j].to(self.kind), self.inputs.terms.get(name)
        return rows if term is None else rows + term[:, None, part].to(self.kind)

    def products(self) -> Tensor:
        """(b, g, e): scaled dot products, or additive scores."""
        inputs = self.inputs
        found = inputs.q.new_empty(*inputs.heads, len(self.i), dtype=self.kind)
        for part, i, j in self.parts():
            q, k = self.queries(i), self.keys(part, j)
            if inputs.slope is None:
                found[..., part] = (q * k).sum(-1) * inputs.scale
            else:
                z = leaky_relu(q + k, inputs.slope)
                weight = 1 if inputs.vector is None else inputs.vector[:, None].to(self.kind)
                found[..., part] = (z * weight).sum(-1)
        return found

    def scores(self, products: Tensor) -> Tensor:
        scale, bias = (self.inputs.terms.get(x) for x in ("edge_scale", "edge_bias"))
        found = products if scale is None else products * scale.to(self.kind)
        return found if bias is None else found + bias.to(self.kind)

    def dropped(self, p: Tensor) -> Tensor:
        drop = self.inputs.drop
        if drop is None:
            return p
        return p * drop.keep(p.shape[0] * p.shape[1], self.i, self.j, self.kind).view(p.shape)


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    edges = _Edges(inputs)
    score, n = edges.scores(edges.products()), inputs.q.shape[2]
    none = score.new_full((*inputs.heads, n), -torch.inf)
    top = none.scatter_reduce(2, edges.i.expand(*score.shape[:2], -1), score, "amax")
    top = torch.where(top == -torch.inf, 0, top)
    p = torch.exp(score - top[..., edges.i])
    total = _sum(torch.zeros_like(top)[..., None], edges.i, p[..., None])[..., 0]
    p = edges.dropped(p)
    out = inputs.v.new_zeros(*inputs.heads, n, inputs.v.shape[-1], dtype=edges.kind)
    for part, i, j in edges.parts():
        _sum(out, i, p[..., part, None] * edges.values(part, j))
    out = out / torch.where(total == 0, 1, total)[..., None]
    return out.to(inputs.v.dtype), torch.log(total) + top


def backward(inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor) -> EdgeGrads:
    edges = _Edges(inputs)
    products, kind = edges.products(), edges.kind
    p = torch.exp(edges.scores(products) - lse[..., edges.i])
    used, dp = edges.dropped(p), torch.empty_like(p)
    dv = inputs.v.new_zeros(inputs.v.shape, dtype=kind)
    dterms = {name: torch.zeros_like(x, dtype=kind) for name, x in inputs.terms.items()}
    for part, i, j in edges.parts():
        g = dout[:, :, i].to(kind)
        dp[..., part] = (g * edges.values(part, j)).sum(-1)
        each = (used[..., part, None] * g).sum(1)
        _sum(dv[:, None], j, each[:, None])
        if "edge_value" in dterms:
            dterms["edge_value"][:, part] = each
    delta = (dout.to(kind) * out.to(kind)).sum(-1)
    ds = used * dp - p * delta[..., edges.i]
    if "edge_bias" in dterms:
        dterms["edge_bias"] = ds
    if "edge_scale" in dterms:
        dterms["edge_scale"] = ds * products
        ds = ds * inputs.terms["edge_scale"].to(kind)
    dq, dk, extra = _of_products(edges, ds)
    if "edge_key" in dterms and extra is not None:
        dterms["edge_key"] = extra
    precision = inputs.v.dtype
    dvector = None if inputs.vector is None or extra is None else extra.to(precision)
    terms = {name: x.to(inputs.terms[name].dtype) for name, x in dterms.items()}
    return EdgeGrads(dq.to(precision), dk.to(precision), dv.to(precision), dvector, terms)


def _of_products(edges: _Edges, ds: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """dq and dk from the gradients of products; that of the vector, or of the edges' keys."""
    inputs, kind = edges.inputs, edges.kind
    dq, dk = (x.new_zeros(x.shape, dtype=kind) for x in (inputs.q, inputs.k))
    other = inputs.vector if inputs.vector is not None else inputs.terms.get("edge_key")
    extra = None if other is None else torch.zeros_like(other, dtype=kind)
    for part, i, j in edges.parts():
        weight, q, k = ds[..., part, None], edges.queries(i), edges.keys(part, j)
        if inputs.slope is None:
            for_q, for_k = weight * k * inputs.scale, weight * q * inputs.scale
            if extra is not None:
                extra[:, part] = for_k.sum(1)
        else:
            z = q + k
            for_q = weight * torch.full_like(z, inputs.slope).masked_fill_(z > 0, 1.0)
            if inputs.vector is not None and extra is not None:
                extra += (weight * leaky_relu(z, inputs.slope)).sum((1, 2))[:, None]
                for_q = for_q * inputs.vector[:, None].to(kind)
            for_k = for_q
        _sum(dq, i, for_q)
        _sum(dk[:, None], j, for_k.sum(1, keepdim=True))
    return dq, dk, extra


def products(inputs: Inputs) -> Tensor:
    """scale · q_i·(k_j + key_e) of each edge: (b, g, e)."""
    return _Edges(inputs).products()


def products_backward(inputs: Inputs, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """dq, dk and the gradient of the edges' keys."""
    return _of_products(_Edges(inputs), grad)


def _sum(total: Tensor, rows: Tensor, each: Tensor) -> Tensor:
    """total[:, :, rows] += each, in one order of sums on every run."""
    if total.is_cuda:  # sorted there; index_add_ adds in the order of arrival
        b, g = (torch.arange(size, device=total.device) for size in total.shape[:2])
        index = (b[:, None, None], g[:, None], rows)
        return total.index_put_(index, each, accumulate=True)
    return total.index_add_(2, rows, each)


OPERATIONS = {
    function.__name__: function
    for function in (
        segment_sum, edge_dots, segment_extreme, equal_sum, grouped_linear, grouped_outer,
    )
}  # fmt: skip
