"""Graphs some of whose pairs count more than once where they were published."""

import warnings
from collections.abc import Iterator
from typing import Any

from edgewise.errors import EdgewiseWarning, caller
from edgewise.graphs.families import Family
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.options import EdgeTerm


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


def warn_counted_once(graph: Pattern | Family[Any], edge_bias: EdgeTerm | None) -> None:
    """Say so where pairs that should count more than once are about to count once."""
    odd = next((one for one in _patterns(graph) if one.counts_twice), None)
    if odd is not None and edge_bias is None:
        place = caller()
        warning = PairsCountedOnce(
            f"`{odd!r}` counts some pairs more than once where it was published, here once",
            place,
            "give `edge_bias=graph.log_bias(n)` for the published numbers",
        )
        warnings.warn_explicit(warning, None, place.span.file, place.span.line)


def counts_twice(graph: Pattern | Family[Any]) -> bool:
    return any(one.counts_twice for one in _patterns(graph))


def _patterns(graph: Pattern | Family[Any]) -> Iterator[Pattern]:
    if isinstance(graph, Pattern):
        yield graph
    else:
        for one in graph:
            yield from _patterns(one)
