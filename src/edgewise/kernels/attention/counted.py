"""Graphs some of whose pairs count more than once where they were published."""

import warnings

from torch import Tensor

from edgewise.errors import EdgewiseWarning, caller
from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern


class PairsCountedOnce(EdgewiseWarning):
    """A graph is a set, so each of its pairs counts once in a softmax.

    BigBird's published code reads some blocks twice, and checkpoints trained with it expect that:
    `log_bias` has the logarithm of how often each pair counts.
    """

    code = "pairs-counted-once"
    example = """\
graph = bigbird(1, 1, variant="hf_eval")
attention(q, k, v, graph)"""
    instead = """\
graph = bigbird(1, 1, variant="hf_eval")
attention(q, k, v, graph, edge_bias=graph.log_bias(8))"""


def warn_counted_once(graph: Pattern | per_head, edge_bias: Tensor | None) -> None:
    """Say so where pairs that should count more than once are about to count once."""
    graphs = graph if isinstance(graph, per_head) else (graph,)
    odd = next((one for one in graphs if one.counts_twice), None)
    if odd is not None and edge_bias is None:
        place = caller()
        warning = PairsCountedOnce(
            f"`{odd!r}` counts some pairs more than once where it was published, here once",
            place,
            "give `edge_bias=graph.log_bias(n)` for the published numbers",
        )
        warnings.warn_explicit(warning, None, place.span.file, place.span.line)
