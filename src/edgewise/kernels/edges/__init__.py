"""Kernels along edges: reductions of segments, a matrix for each relation, softmax attention.

Rows are read where they are: O(rows · d + edges) of memory.
"""

from edgewise.kernels.edges.index import (
    EdgeIndex,
    Grouping,
    SplitCSR,
    edge_index,
    grouping,
    segment_index,
)
from edgewise.kernels.edges.message_operator import segment_messages
from edgewise.kernels.edges.messages import MessageIndex, Messages, message_index
from edgewise.kernels.edges.operators import (
    additive_attention,
    edge_dots,
    grouped_linear,
    segment_extreme,
    segment_mean,
    segment_sum,
)
from edgewise.kernels.edges.registry import KERNELS, EdgeOperation, choose
from edgewise.kernels.edges.relational_operator import relational_attention

__all__ = [
    "KERNELS",
    "EdgeIndex",
    "EdgeOperation",
    "Grouping",
    "MessageIndex",
    "Messages",
    "SplitCSR",
    "additive_attention",
    "choose",
    "edge_dots",
    "edge_index",
    "grouped_linear",
    "grouping",
    "message_index",
    "relational_attention",
    "segment_extreme",
    "segment_index",
    "segment_mean",
    "segment_messages",
    "segment_sum",
]
