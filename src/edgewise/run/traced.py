"""Attention along a graph as one node of the physical plan: a prepared call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.attention import attention, traced
from edgewise.kernels.attention.autocast import in_autocast
from edgewise.kernels.attention.options import Options, TermInputs
from edgewise.kernels.attention.prepared import Prepared, prepare_call
from edgewise.physical.symbols import Symbol, opaque
from edgewise.scores import Score
from edgewise.scores.nodes import Node, S


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
    """`attention` with scale 1, prepared where shapes alone are known; `tables` are the score's."""
    if not isinstance(q, Symbol):
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
    inputs = TermInputs(bias, edge_bias, edge_scale, lengths=lengths, tables=tables)
    prepared = prepare_call(q, k, v, graph, Options(1.0, score, dropout), inputs, q.device)
    held = prepared.holding(graph)
    return attend(q, k, v, held, bias, edge_bias, edge_scale, lengths, list(tables))


def _operators(q: Tensor, k: Tensor, v: Tensor, prepared: Prepared, *given: Any) -> Tensor:
    bias, edge_bias, edge_scale, lengths, tables = given
    inputs = TermInputs(bias, edge_bias, edge_scale, lengths=lengths, tables=tuple(tables))
    q, k, v = in_autocast(q, k, v)
    found: Tensor = traced.call(q, k, v, prepared.graph, prepared.options, inputs)
    return found


@opaque(
    like=lambda q, k, v, prepared, *_: torch.empty(prepared.shape, dtype=q.dtype, device="meta"),
    operators=_operators,
)
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared: Prepared,
    bias: Tensor | None,
    edge_bias: Tensor | None,
    edge_scale: Tensor | None,
    lengths: Tensor | None,
    tables: list[Tensor],
) -> Tensor:
    """A prepared call; in a precision that autocast chooses, one like it."""
    inputs = TermInputs(bias, edge_bias, edge_scale, lengths=lengths, tables=tuple(tables))
    if torch.is_autocast_enabled(q.device.type) or _transformed():
        options = prepared.options
        return attention(
            q,
            k,
            v,
            prepared.graph,
            scale=1.0,
            bias=bias,
            dropout=options.dropout,
            lengths=lengths,
            score=Score(options.score, tuple(tables)),
            edge_bias=edge_bias,
            edge_scale=edge_scale,
        )
    found: Tensor = prepared.call(q, k, v, inputs)
    return found


ATTEND = attend.__wrapped__  # type: ignore[attr-defined]  # what nodes call


def _transformed() -> bool:
    """Whether a function transformation, such as `torch.vmap`, is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None
