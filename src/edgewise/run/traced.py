"""Attention along a graph in a step that is traced: kept whole, as one operator.

A trace cannot look into kernels that are chosen by the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.attention import attention, traced
from edgewise.kernels.attention.options import Inputs, Options
from edgewise.run.tape.whole import whole
from edgewise.scores import Score
from edgewise.scores.nodes import Node, S

_OPERATORS: list[bool] = []  # not empty while a step is traced


@contextmanager
def as_operators() -> Iterator[None]:
    """While a step is traced, attention is kept whole."""
    _OPERATORS.append(True)
    try:
        yield
    finally:
        _OPERATORS.pop()


@whole
def graph_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Any,
    *,
    bias: Tensor | None,
    dropout: float,
    lengths: Tensor | None = None,
    score: Node = S,
    tables: tuple[Tensor, ...] = (),
    edge_bias: Tensor | None = None,
    edge_scale: Tensor | None = None,
) -> Tensor:
    """`attention` with scale 1; in a trace as one operator. `tables` are those of the score."""
    if not _OPERATORS or torch.compiler.is_compiling():
        return attention(
            q,
            k,
            v,
            graph,
            scale=1.0,
            bias=bias,
            dropout=dropout,
            lengths=lengths,
            score=Score(score, tables),
            edge_bias=edge_bias,
            edge_scale=edge_scale,
        )
    options = Options(1.0, score, dropout)
    inputs = Inputs(bias, edge_bias, edge_scale, lengths=lengths, tables=tables)
    out: Tensor = traced.call(q, k, v, graph, options, inputs)
    return out
