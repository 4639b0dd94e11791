"""Attention along a graph as one node of the plan: dot products prepared, sums along edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.kernels.attention import attention, present_rows
from edgewise.kernels.attention.autocast import in_autocast
from edgewise.kernels.attention.calls import traced
from edgewise.kernels.attention.calls.prepared import Prepared, prepare_call
from edgewise.kernels.attention.contract import NO_INPUTS, Options, TermInputs
from edgewise.kernels.attention.flash import fused
from edgewise.kernels.edges import EdgeIndex, additive_attention
from edgewise.kernels.edges.registry import EdgeOperation, note_choice
from edgewise.physical.lowering_state import State
from edgewise.physical.opaque import opaque
from edgewise.physical.result_shapes import broadcast, described
from edgewise.physical.symbols import Symbol
from edgewise.plan.nodes import Additive
from edgewise.scores import Score
from edgewise.scores.nodes import Node, S

_interpreter = torch._C._functorch.peek_interpreter_stack  # of a transform, such as `torch.vmap`


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


def _operators(q: Tensor, k: Tensor, v: Tensor, prepared: Prepared, *terms: Any) -> Tensor:
    bias, edge_bias, edge_scale, lengths, tables = terms
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
    """A prepared call; in a precision that autocast chooses one like it, and under a transform of
    `torch.func` the reference, as users cannot request it."""
    if torch.is_autocast_enabled(q.device.type) or _interpreter() is not None:
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
            kernel="reference" if _interpreter() is not None else None,
        )
    inputs = NO_INPUTS
    if prepared.takes_inputs:
        inputs = TermInputs(bias, edge_bias, edge_scale, lengths=lengths, tables=tuple(tables))
    found: Tensor = prepared.call(q, k, v, inputs)
    return found


def attend_masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    queries: Tensor | None,
    bias: Tensor | None,
    graph: Any,
    dropout: float,
) -> Tensor:
    """All pairs, those of rows that are not there masked."""
    mask = keys[:, None, None] if bias is None else bias + keys[:, None, None]
    if graph is None:
        out = fused(q, k, v, 1.0, mask=mask, dropout=dropout)
    else:
        out = attention(q, k, v, graph, scale=1.0, bias=mask, dropout=dropout)
    if queries is None:
        return out
    return out.masked_fill((queries == -torch.inf)[:, None, :, None], 0.0)


@opaque(
    like=lambda q, k, v, *_: torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device="meta"),
    operators=attend_masked,
)
def attend_present(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    queries: Tensor | None,
    bias: Tensor | None,
    graph: Any,
    dropout: float,
) -> Tensor:
    """Attention of the rows that are there; see `kernels/attention/present_rows.py`.

    Which they are is read from the data: on a GPU, which would have to be waited for, all pairs are
    computed and masked.
    """
    q, k, v = in_autocast(q, k, v)
    if not q.is_cuda and _interpreter() is None:
        runs = present_rows.runs_of(keys, queries, q.shape[0], q.shape[2], graph)
        if present_rows.worth_it(runs, graph, tuple(q.shape), k.shape[2]):
            return present_rows.attend_runs(q, k, v, runs, keys, bias, graph, dropout)
    return attend_masked(q, k, v, keys, queries, bias, graph, dropout)


ATTEND_PRESENT = attend_present.__wrapped__  # type: ignore[attr-defined]
ATTEND = attend.__wrapped__  # type: ignore[attr-defined]  # what nodes call


if TYPE_CHECKING:
    from edgewise.physical.attention.sides import Side
    from edgewise.physical.attention.step import AttentionStep


def additive_output(step: AttentionStep, state: State) -> tuple[Tensor, tuple[int, ...]]:
    """The output (batch, shared..., n, dv), and the shape of one value."""
    node, axes = step.node, step.axes
    q = _added(step, step.queries, node.query, state)
    k = _added(step, step.keys, node.key, state)
    v, rank = step.weighed((*node.shared, node.key), state)
    size = broadcast(*(x.shape[:1] for x in (q, k, v)))
    parts = [step.spread(x, *size) for x in (q, k, v)]
    batch, *heads = parts[0].shape[:-2]
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in parts)
    t = None if step.vector is None else _vector(step, step.vector, batch, state)
    assert isinstance(node.score.products, Additive)
    assert step.which is not None
    dropout = node.dropout if state.training else 0.0
    width = max(q.shape[-1], v.shape[-1])
    note_choice(EdgeOperation("additive_attention", width, v.dtype, v.device.type))
    out = _along(q, k, v, step.which, t, node.score.products.slope, dropout)
    return out.reshape(batch, *heads, axes[node.query], out.shape[-1]), rank


def _added(step: AttentionStep, sides: Sequence[Side], name: str, state: State) -> Tensor:
    """The sum of the queries (or keys): (batch, shared..., places, features)."""
    order = (*step.node.shared, name)
    found: Tensor | None = None
    for side in sides:
        data = side(state, order, step.axes)
        data = data.unsqueeze(-1) if data.ndim == 1 + len(order) else data
        found = data if found is None else found + data
    assert found is not None
    return found.expand(*found.shape[:-2], step.axes[name], found.shape[-1])


def _vector(step: AttentionStep, side: Side, batch: int, state: State) -> Tensor:
    """One row for each head of each element of the batch: (b, 1, d)."""
    data = side(state, step.node.shared, step.axes)  # (1, shared..., 1, d) or (1, shared..., d)
    shared = [step.axes[n] for n in step.node.shared]
    data = data.reshape(data.shape[0], *data.shape[1 : 1 + len(shared)], 1, -1)
    return data.expand(batch, *shared, 1, data.shape[-1]).reshape(-1, 1, data.shape[-1])


def _attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    which: EdgeIndex,
    vector: Tensor | None,
    slope: float,
    dropout: float,
) -> Tensor:
    q, k, v = in_autocast(q, k, v)
    vector = None if vector is None else vector.to(q.dtype)
    return additive_attention(q, k, v, which, vector=vector, slope=slope, dropout=dropout)


ATTEND_ALONG = _attended  # what nodes call
_along = opaque(
    like=lambda q, k, v, which, *_: described(
        (q.shape[0], which.rows.segments, v.shape[2]), v.dtype
    ),
    operators=_attended,
)(_attended)
