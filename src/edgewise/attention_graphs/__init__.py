"""What a model attends to: a sparse weighted graph for each layer and head, at any length."""

from edgewise.attention_graphs.counterfactual import Counterfactual, without
from edgewise.attention_graphs.graph import AttentionGraph, HeadSummary
from edgewise.attention_graphs.reading import attention_graph
from edgewise.attention_graphs.table import WeightedEdges

__all__ = [
    "AttentionGraph",
    "Counterfactual",
    "HeadSummary",
    "WeightedEdges",
    "attention_graph",
    "without",
]
