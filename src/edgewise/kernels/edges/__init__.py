"""Kernels along edges: sums, means and extremes of gathered rows, a matrix for each relation.

Nothing is materialised per edge: O(rows · d + edges) of memory.
"""

from edgewise.kernels.edges.groups import Grouping, grouping
from edgewise.kernels.edges.index import EdgeIndex, SplitCSR, edge_index, segment_index
from edgewise.kernels.edges.operators import (
    grouped_linear,
    segment_extreme,
    segment_mean,
    segment_sum,
)
from edgewise.kernels.edges.registry import KERNELS, Case, choose

__all__ = [
    "KERNELS",
    "Case",
    "EdgeIndex",
    "Grouping",
    "SplitCSR",
    "choose",
    "edge_index",
    "grouped_linear",
    "grouping",
    "segment_extreme",
    "segment_index",
    "segment_mean",
    "segment_sum",
]
