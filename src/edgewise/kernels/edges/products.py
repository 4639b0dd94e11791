"""Sums of products of two rows along edges: y_s = Σ_e scale_e · x_j ⊙ w_k, nothing materialised.

Edge e has three ends: its segment s, the row j of x and the row k of w, such as a relation. The
gradients are sums of the same kind, along the same edges by j and by k:

    dx_j = Σ_e scale_e · dy_s ⊙ w_k        dw_k = Σ_e scale_e · dy_s ⊙ x_j
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.index import FIELDS, SplitCSR, in_pieces
from edgewise.kernels.edges.numba_attention import loop
from edgewise.kernels.edges.reference import CHUNK, wide
from edgewise.kernels.threads import spread

ENDS = 3  # of an edge
STEP = FIELDS + 1  # tensors of one direction


@dataclass(frozen=True, eq=False)
class Along:
    """Edges by one of their ends: `rows.index` are the rows of the next end, `other` of the last.

    `rows.perm` are the numbers of the edges, in the order in which scales are.
    """

    rows: SplitCSR
    other: Tensor


@dataclass(frozen=True, eq=False)
class ProductIndex:
    """The same edges by segment, by row of x and by row of w; the first is what is summed."""

    ways: tuple[Along, ...]

    @property
    def edges(self) -> int:
        return self.ways[0].rows.edges

    @cached_property
    def turned(self) -> ProductIndex:
        """By row of x, which reads segments and rows of w."""
        s, j, k = self.ways
        return ProductIndex((_swapped(j), _swapped(s), _swapped(k)))

    @cached_property
    def last_first(self) -> ProductIndex:
        """By row of w, which reads segments and rows of x."""
        s, j, k = self.ways
        return ProductIndex((k, s, j))

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All of it, as operators take it."""
        fields = SplitCSR.__dataclass_fields__
        return [
            t for way in self.ways for t in (*(getattr(way.rows, f) for f in fields), way.other)
        ]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> ProductIndex:
        """Back from `tensors`."""
        starts = range(0, ENDS * STEP + 1, STEP)
        parts = [tensors[a:b] for a, b in pairwise(starts)]
        return ProductIndex(tuple(Along(SplitCSR(*part[:FIELDS]), part[FIELDS]) for part in parts))


def _swapped(way: Along) -> Along:
    """The same with the two other ends in the other order."""
    r = way.rows
    rows = SplitCSR(r.ptr, way.other, r.perm, r.pieces, r.owner, r.slot, r.split, r.split_ptr)
    return Along(rows, r.index)


def product_index(ends: Sequence[Tensor], sizes: Sequence[int]) -> ProductIndex:
    """Edge e has the ends s[e], j[e] and k[e], of so many segments and rows.

    >>> ends = [torch.tensor(x) for x in ([0, 0, 1], [2, 0, 2], [0, 1, 1])]
    >>> product_index(ends, (2, 3, 2)).ways[2].rows.ptr.tolist()
    [0, 1, 3]
    """
    ways = []
    for at in range(ENDS):
        first, second, third = (ends[(at + turn) % ENDS] for turn in range(ENDS))
        order = first.argsort(stable=True)
        counts = torch.bincount(first, minlength=sizes[at])
        ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        lists = (ptr, second[order], order)
        ways.append(Along(in_pieces(*(x.int() for x in lists)), third[order].int()))
    return ProductIndex(tuple(ways))


def reference(x: Tensor, w: Tensor, scale: Tensor | None, index: ProductIndex) -> Tensor:
    """Gathered some edges at a time, and added."""
    (rows, other), kind = (index.ways[0].rows, index.ways[0].other), wide(x.dtype)
    found = x.new_zeros(rows.segments, x.shape[1], dtype=kind)
    step, ids = max(CHUNK // max(x.shape[1], 1), 1), rows.ids
    for at in range(0, rows.edges, step):
        part = slice(at, at + step)
        read = x.index_select(0, rows.index[part]).to(kind) * w.index_select(0, other[part])
        if scale is not None:
            read = read * scale.index_select(0, rows.perm[part])[:, None]
        found.index_add_(0, ids[part], read)
    return found.to(x.dtype)


def by_loops(x: Tensor, w: Tensor, scale: Tensor | None, index: ProductIndex) -> Tensor:
    """The same by a loop that numba compiles."""
    (rows, other), kind = (index.ways[0].rows, index.ways[0].other), wide(x.dtype)
    out = x.new_empty(rows.results, x.shape[1], dtype=kind)
    left, right = (t.detach().to(kind).contiguous().numpy() for t in (x, w))
    every = out.new_empty(0) if scale is None else scale.detach().to(kind).contiguous()
    graph = rows.arrays
    arguments = (graph, left, right, other.numpy(), every.numpy(), rows.perm.numpy(), out.numpy())
    spread(loop("segment_product"), [arguments], graph[0], numbers=rows.edges * x.shape[1])
    return rows.summed(out).to(x.dtype)


def dots(grad: Tensor, x: Tensor, w: Tensor, index: ProductIndex) -> Tensor:
    """z_e = Σ_c dy_s x_j w_k, in the order of the edges: the gradient of a scale."""
    (rows, other), kind = (index.ways[0].rows, index.ways[0].other), wide(x.dtype)
    found = x.new_empty(rows.edges, dtype=kind)
    step, ids = max(CHUNK // max(x.shape[1], 1), 1), rows.ids
    for at in range(0, rows.edges, step):
        part = slice(at, at + step)
        read = x.index_select(0, rows.index[part]).to(kind) * w.index_select(0, other[part])
        found[rows.perm[part].long()] = (read * grad.index_select(0, ids[part])).sum(-1)
    return found.to(x.dtype)


LOOPS: dict[str, Callable[..., Any]] = {"segment_product": by_loops}
OPERATIONS: dict[str, Callable[..., Any]] = {"segment_product": reference, "product_dots": dots}
