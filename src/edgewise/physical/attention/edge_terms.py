"""Numbers of pairs that a relation lists, as terms of the edges of an attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from edgewise.graphs import from_edges, full
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Grid, Index, locate
from edgewise.ground.masks.pattern import DENSE, is_irregular, pattern_of_rows
from edgewise.language import nodes
from edgewise.layouts import rows_of_pairs, rows_of_trapezoids, trapezoids
from edgewise.layouts.ragged import distinct
from edgewise.physical.attention.extents import Extents, Refused
from edgewise.physical.attention.pairs import sorted_of
from edgewise.physical.attention.sides import Axes, EdgeSide
from edgewise.physical.rule import SUM, RuleStep
from edgewise.plan.nodes import Additive, Attention


@dataclass(frozen=True, eq=False)
class Listed:
    """An expression with a value for each pair that a relation lists, grounded."""

    item: nodes.Expression
    ground: GroundRule
    names: tuple[str, ...]

    @property
    def is_dense(self) -> bool:
        return isinstance(self.ground.heads, Grid)


def listed_pairs(parts: Sequence[Listed], node: Attention, axes: Axes, pattern: Any) -> Any:
    """The pairs of a pattern for which all expressions have values."""
    for part in parts:
        if not part.is_dense:
            pairs = pattern_of(part.ground.heads, part.names, node, axes)
            pattern = pairs if pattern is None else pattern & pairs
    return pattern


def pattern_of(index: Index, names: Sequence[str], node: Attention, axes: Axes) -> Any:
    """The pairs (query, key) that occur among keys, inside the axes."""
    if isinstance(index, Grid):
        sizes = dict(zip(names, index.sizes, strict=True))
        high, wide = (min(sizes[name], axes[name]) for name in (node.query, node.key))
        ends = trapezoids((0, high), 0, wide)
        return pattern_of_rows(rows_of_trapezoids(axes[node.query], axes[node.key], ends))
    i, j = (index.column(list(names).index(name)) for name in (node.query, node.key))
    n, m = axes[node.query], axes[node.key]
    if isinstance(node.score.products, Additive) and n and m:
        return sorted_of(i, j, n, m)
    inside = (i >= 0) & (i < n) & (j >= 0) & (j < m)
    # sorted and distinct much faster than pairs are
    codes = torch.from_numpy(distinct((i[inside] * m + j[inside]).numpy()))
    i, j = codes // m, codes % m
    if DENSE * len(codes) >= n * m:
        rows = rows_of_pairs(n, m, i.numpy(), j.numpy())
        if is_irregular(rows):
            return pattern_of_rows(rows)
    return from_edges(torch.stack([i, j]), shape=(n, m))


def edge_side(part: Listed, node: Attention, extents: Extents, pattern: Any) -> EdgeSide:
    """The value of every edge of the pattern, in its order."""
    axes = extents.axes
    edges = (full() if pattern is None else pattern).edges(axes[node.query], axes[node.key])
    shared = tuple(n for n in node.shared if n in part.names)
    sizes = tuple(axes[n] for n in shared)
    grid = Grid((*sizes, edges.shape[1]))
    of = dict(zip(shared, range(len(shared)), strict=True))
    at = grid.column(len(shared))
    places = {node.query: edges[0], node.key: edges[1]}
    columns = [
        extents.key(name, grid.column(of[name])) if name in of else places[name].to(at.device)[at]
        for name in part.names
    ]
    rows = locate(part.ground.heads, columns)
    if bool((rows < 0).any()):
        raise Refused(f"`{part.item!r}` lists different pairs for different heads")
    return EdgeSide(RuleStep(part.ground, SUM), shared, sizes, rows)
