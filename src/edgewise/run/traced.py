"""Attention along a graph as one operator, for `torch.compile` and `torch.export`.

A trace cannot look into kernels that are chosen by the graph; it keeps this operator whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import attention, choose
from edgewise.kernels.attention.arguments import build_case, grouped
from edgewise.kernels.attention.contract import Case, Implementation, Saved, Terms, wide
from edgewise.run.tape.whole import whole

_GRAPHS: list[Pattern] = []  # operators take numbers and tensors: a graph goes by its place here
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
    q: Tensor, k: Tensor, v: Tensor, graph: Any, *, bias: Tensor | None, dropout: float
) -> Tensor:
    """`attention` with scale 1; in a trace, if it is plain, as one operator."""
    if (_OPERATORS or torch.compiler.is_compiling()) and bias is None and not dropout:
        out: Tensor = torch.ops.edgewise.attention(q, k, v, _place(graph))[0]
        return out
    return attention(q, k, v, graph, scale=1.0, bias=bias, dropout=dropout)


@torch._dynamo.assume_constant_result
def _place(graph: Pattern) -> int:
    """The number of a graph, the same for equal graphs."""
    if graph not in _GRAPHS:
        _GRAPHS.append(graph)
    return _GRAPHS.index(graph)


def _kernel(tensors: tuple[Tensor, Tensor, Tensor], graph: int) -> tuple[Case, Implementation]:
    case = build_case(tensors, _GRAPHS[graph], 1.0, 0)
    return case, choose(case).implementation


@torch.library.custom_op("edgewise::attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, graph: int) -> tuple[Tensor, Tensor]:
    tensors = grouped(q, k, v)
    case, kernel = _kernel(tensors, graph)
    out, lse = kernel.forward(case, *tensors, Terms())
    return out.reshape(*q.shape[:-1], case.dv).clone(), lse.reshape(q.shape[:-1]).clone()


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, graph: int) -> tuple[Tensor, Tensor]:
    lse = q.new_empty(q.shape[:-1], dtype=wide(q.dtype))
    return q.new_empty(*q.shape[:-1], v.shape[-1]), lse


@torch.library.custom_op("edgewise::attention_backward", mutates_args=())
def _backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, graph: int
) -> tuple[Tensor, Tensor, Tensor]:
    tensors = grouped(q, k, v)
    case, kernel = _kernel(tensors, graph)
    heads = tensors[0].shape[:-1]
    rows = torch.where(lse == -torch.inf, torch.inf, lse).reshape(heads)
    saved = Saved(*tensors, Terms(), out.reshape(*heads, case.dv), rows)
    grads = kernel.backward(case, saved, dout.reshape(*heads, case.dv).contiguous())
    return (
        grads.q.reshape(q.shape).clone(),
        grads.k.reshape(k.shape).clone(),
        grads.v.reshape(v.shape).clone(),
    )


@_backward.register_fake
def _(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, graph: int
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _saved(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.graph = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, dout: Tensor, dlse: Tensor) -> tuple[Tensor | None, ...]:
    found = torch.ops.edgewise.attention_backward(dout, *ctx.saved_tensors, ctx.graph)
    return (*found, None)


_attention.register_autograd(_gradients, setup_context=_saved)
