"""Products over a grid: cells are taken box by box, so that a block of tokens is a box of cells.

Row by row, the neighbours of a pixel are in as many blocks as the neighbourhood has rows; box by
box, the neighbourhoods of 64 pixels share nearly all of theirs. Tokens are copied into this order
and back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from edgewise.graphs.by_blocks import ByBlocks
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.grid import grid_product
from edgewise.kernels.attention import blocks
from edgewise.kernels.attention.contract import (
    Case,
    Grads,
    Implementation,
    Saved,
    Terms,
    cached_by_case,
)
from edgewise.kernels.attention.triton import blocks as triton_blocks
from edgewise.layouts.boxes import BoxCells, BoxOrder
from edgewise.scores.nodes import I, J, walk

name = "tiled"
nesting = 1  # the boxes are computed by kernels below
COPY = 4.0  # the time to copy a feature of a token, in pairs of a dense product


@dataclass(frozen=True, repr=False)
class boxed(ByBlocks):
    """The pairs of a product, its cells in the order of boxes."""

    product: Pattern

    @cached_property
    def bitmap(self) -> BoxCells:  # type: ignore[override]
        assert isinstance(self.product, grid_product)
        return BoxCells(BoxOrder(self.product.sizes), self.product.axes)


def refuses(case: Case) -> str | None:
    if not isinstance(case.graph, grid_product):
        return "the graph is not a product over a grid"
    if not case.work:
        return "there are no pairs"
    if any(node in (I, J) for node in walk(case.score)):
        return "the score reads positions of tokens, which another order changes"
    if reason := case.lacks("score"):
        return reason
    inner, kernel = _plan(case)
    return kernel.refuses(inner)


def cost(case: Case) -> float:
    inner, kernel = _plan(case)
    copies = COPY * case.b * ((1 + case.g) * case.n + 2 * case.m)
    return kernel.cost(inner) + copies


@cached_by_case
def _plan(case: Case) -> tuple[Case, Implementation]:
    """The case in the order of boxes, and the kernel for it."""
    graph = boxed(case.graph)
    tokens = graph.bitmap.order.tokens
    inner = replace(case, graph=graph, n=tokens, m=tokens, features=case.features | {"lse"})
    return inner, triton_blocks if triton_blocks.refuses(inner) is None else blocks


@cached_by_case
def _orders(case: Case) -> tuple[Tensor, Tensor]:
    """The token of each place, and the place of each token."""
    order = boxed(case.graph).bitmap.order
    at, places = (torch.from_numpy(x).to(case.device) for x in (order.at, order.places))
    return at, places


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    (inner, kernel), (at, places) = _plan(case), _orders(case)
    q, k, v = (x.index_select(-2, at) for x in (q, k, v))
    out, lse = kernel.forward(inner, q, k, v, terms)
    return out.index_select(2, places), lse.index_select(2, places)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    (inner, kernel), (at, places) = _plan(case), _orders(case)
    q, k, v, out, g = (x.index_select(-2, at) for x in (saved.q, saved.k, saved.v, saved.out, dout))
    lse = torch.full((*q.shape[:3],), torch.inf, dtype=saved.lse.dtype, device=q.device)
    lse[:, :, places] = saved.lse  # places beyond the grid have no pairs
    found = kernel.backward(inner, Saved(q, k, v, saved.terms, out, lse), g)
    dq, dk, dv = (x.index_select(-2, places) for x in (found.q, found.k, found.v))
    return Grads(dq, dk, dv, found.terms)
