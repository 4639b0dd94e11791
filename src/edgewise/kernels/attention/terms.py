"""Terms of scores on a set of pairs: what they add, and the gradients that come back to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.contract import Case, Terms, wide
from edgewise.kernels.edges.index import EdgeIndex, edge_index
from edgewise.scores.evaluate import PairScores, accumulate
from edgewise.scores.nodes import S, entries
from edgewise.scores.primitives import derivative


@cached
def edges_of(graph: Pattern, n: int, m: int, device: torch.device) -> EdgeIndex:
    """The edges of a graph, sorted where they are used: a GPU is a hundred times as fast."""
    csr = graph.csr(n, m)
    row = torch.arange(n, dtype=torch.int32, device=device)
    j, sizes = csr.index.to(device), csr.ptr.to(device).diff()
    i = torch.repeat_interleave(row, sizes, output_size=len(j))
    return edge_index(i, j, n, m)


@cached
def places(graph: Pattern, n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """i and j of every edge, in order."""
    rows = edges_of(graph, n, m, device).rows
    return rows.ids.long(), rows.index.long()


@cached
def _flat(graph: Pattern, n: int, m: int, device: torch.device) -> Tensor:
    i, j = places(graph, n, m, device)
    return i * m + j


def numbers(graph: Pattern, n: int, m: int, i: Tensor, j: Tensor) -> Tensor:
    """The number of each pair (i, j) among the edges; any number where it is not an edge."""
    flat = _flat(graph, n, m, i.device)
    return torch.searchsorted(flat, i * m + j).clamp(max=max(len(flat) - 1, 0))


@dataclass(frozen=True, eq=False)
class Tile:
    """Pairs (i, j), broadcast to `shape`; `edge` are their numbers, `allowed` which are there."""

    i: Tensor
    j: Tensor
    edge: Tensor | None = None
    allowed: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return torch.broadcast_shapes(self.i.shape, self.j.shape)


class TermGrads:
    """Gradients of terms, added up over tiles."""

    def __init__(self, case: Case, terms: Terms) -> None:
        def zeros(x: Tensor | None) -> Tensor | None:
            return None if x is None else _zeros(x, wide(case.dtype))

        self.inputs = terms
        self.bias, self.edge_bias = zeros(terms.bias), zeros(terms.edge_bias)
        self.edge_scale = zeros(terms.edge_scale)
        self.edge_key, self.edge_value = zeros(terms.edge_key), zeros(terms.edge_value)
        self.tables = [_zeros(t, wide(case.dtype)) for t in terms.tables]

    def terms(self) -> Terms:
        """In the precision of the inputs."""

        def like(grad: Tensor | None, term: Tensor | None) -> Tensor | None:
            return None if grad is None or term is None else grad.to(term.dtype)

        found = [self.bias, self.edge_bias, self.edge_scale, self.edge_key, self.edge_value]
        pairs = zip([*found, *self.tables], self.inputs.tensors, strict=True)
        return Terms.of([like(grad, term) for grad, term in pairs])


class Scores:
    """Scores of a tile from its scaled dot products (b, g, ...), and back."""

    def __init__(self, case: Case, terms: Terms, tile: Tile, dot: Tensor) -> None:
        self.case, self.terms, self.tile, self.dot = case, terms, tile, dot

    @cached_property
    def _scale(self) -> Tensor | None:
        return _taken(self.terms.edge_scale, self.tile, self.dot)

    @cached_property
    def _pairs(self) -> PairScores:
        scaled = self.dot if self._scale is None else self.dot * self._scale
        scaled = scaled.flatten(0, 1)
        h = torch.arange(len(scaled), device=scaled.device)
        h = h.view(-1, *(1,) * (scaled.ndim - 1))
        return PairScores(scaled, self.tile.i, self.tile.j, h, self.terms.tables)

    def values(self) -> Tensor:
        """(b, g, ...), -∞ where there is no pair."""
        s = self._pairs[self.case.score].expand(self._pairs.s.shape).view(self.dot.shape)
        if self.terms.bias is not None:
            s = s + _read(self.terms.bias, self.tile).to(s.dtype)
        extra = _taken(self.terms.edge_bias, self.tile, self.dot)
        s = s if extra is None else s + extra
        absent = None if self.tile.allowed is None else ~self.tile.allowed
        return s if absent is None else s.masked_fill(absent, -torch.inf)

    def backward(self, ds: Tensor, total: TermGrads) -> Tensor:
        """The gradient of the dot products; those of terms are added to `total`."""
        if total.bias is not None:
            _spread(total.bias, self.tile, ds)
        _put(total.edge_bias, self.tile, ds)
        heads = ds.flatten(0, 1)
        score, pairs = self.case.score, self._pairs
        for entry in entries(score) if self.case.learns else ():
            pairs.add_to(total.tables[entry.table], entry, pairs[derivative(score, entry)] * heads)
        if score != S:
            ds = (pairs[derivative(score, S)] * heads).view(ds.shape)
        if self._scale is None:
            return ds
        _put(total.edge_scale, self.tile, ds * self.dot)
        return ds * self._scale

    def keep(self) -> Tensor | None:
        """(b, g, ...): the factors of dropout."""
        drop, shape = self.terms.drop, self.dot.shape
        if drop is None:
            return None
        factors = drop.keep(shape[0] * shape[1], self.tile.i, self.tile.j, self.dot.dtype)
        return factors.expand(-1, *shape[2:]).view(shape)


def _taken(per_edge: Tensor | None, tile: Tile, like: Tensor) -> Tensor | None:
    """(b, g, ...) of (b, g, e)."""
    if per_edge is None:
        return None
    assert tile.edge is not None
    return per_edge[:, :, tile.edge].to(like.dtype)


def _put(total: Tensor | None, tile: Tile, grad: Tensor) -> None:
    """Edges are in one tile only."""
    if total is None:
        return
    assert tile.edge is not None
    if tile.allowed is None:
        total[:, :, tile.edge] = grad
    else:
        there = tile.allowed.expand(tile.shape)
        total[:, :, tile.edge.expand(tile.shape)[there]] = grad[:, :, there]


def _zeros(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Contiguous, whatever the strides of `x`: gradients are added by flat indices."""
    return torch.zeros(x.shape, dtype=dtype, device=x.device)


def _axes(bias: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
    i, j = tile.i, tile.j
    return (i if bias.shape[-2] > 1 else i * 0), (j if bias.shape[-1] > 1 else j * 0)


def _read(bias: Tensor, tile: Tile) -> Tensor:
    i, j = _axes(bias, tile)
    at = (i * bias.shape[-1] + j).expand(tile.shape)
    flat = bias.flatten(2).flatten(0, 1)  # torch takes columns of a matrix fastest
    return flat.index_select(1, at.flatten()).view(*bias.shape[:2], *at.shape)


def _spread(total: Tensor, tile: Tile, ds: Tensor) -> None:
    i, j = _axes(total, tile)
    at = (i * total.shape[-1] + j).expand(tile.shape).reshape(1, -1)
    flat = total.view(-1, total.shape[-2] * total.shape[-1])
    accumulate(flat, at.expand(len(flat), -1), ds.reshape(len(flat), -1))


def on_edges(case: Case, terms: Terms) -> Terms:
    """The bias of pairs as one of edges, for kernels that walk along edges."""
    if terms.bias is None:
        return terms
    tile = Tile(*places(case.graph, case.n, case.m, terms.bias.device))
    extra = _read(terms.bias, tile)
    both = extra if terms.edge_bias is None else terms.edge_bias + extra
    return Terms(**{**vars(terms), "bias": None, "edge_bias": both})


def off_edges(case: Case, inputs: Terms, found: Terms) -> Terms:
    """The gradients of the terms of a call, from those of `on_edges`."""
    if inputs.bias is None or found.edge_bias is None:
        return found
    tile = Tile(*places(case.graph, case.n, case.m, inputs.bias.device))
    total = _zeros(inputs.bias, wide(case.dtype))
    _spread(total, tile, found.edge_bias.to(total.dtype))
    edge = None if inputs.edge_bias is None else found.edge_bias
    return Terms(**{**vars(found), "bias": total.to(inputs.bias.dtype), "edge_bias": edge})
