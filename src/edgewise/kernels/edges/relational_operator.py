"""Attention with a vector on each edge as an operation with gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.index import EdgeIndex
from edgewise.kernels.edges.operators import Operation
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.edges.relational import RelationalInputs

INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor x, Tensor? a, Tensor? b, Tensor? bias, Tensor? seed, "
    "bool values, float dropout, Tensor[] index"
)


def _fake(*inputs: Any) -> tuple[Tensor, Tensor]:
    found = RelationalInputs(*inputs)
    c, n, h, _ = found.q.shape
    out = found.v.new_empty(c, n, h * found.out_width)
    return out, found.v.new_empty(c, n, h, dtype=wide(found.v.dtype))


def _fake_backward(*inputs: Any) -> tuple[Tensor, ...]:
    none = inputs[5].new_empty(0)
    return tuple(none if x is None else x.new_empty(x.shape) for x in inputs[3:10])


def _contiguous(found: tuple[Tensor, ...], _: Any) -> tuple[Tensor, ...]:
    return tuple(x.contiguous() for x in found)


def _gradients(*saved: Any) -> list[Callable[[], Tensor]]:
    """All are computed at once."""
    *inputs, out, lse, index, grad = saved
    found = relational_backward(grad, out, lse, *inputs, index=index)
    return [partial(_known, x) for x in found]


def _known(x: Tensor) -> Tensor:
    return x


relate = Operation(
    f"relational_attention({INPUTS}) -> (Tensor, Tensor)",
    EdgeIndex,
    _fake,
    _gradients,
    ordered=_contiguous,
)
relational_backward = Operation(
    f"relational_attention_backward(Tensor dout, Tensor out, Tensor lse, {INPUTS}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    EdgeIndex,
    _fake_backward,
    ordered=_contiguous,
)


def relational_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    x: Tensor,
    index: EdgeIndex,
    *,
    a: Tensor | None = None,
    b: Tensor | None = None,
    bias: Tensor | None = None,
    values: bool = True,
    dropout: float = 0.0,
) -> Tensor:
    """[Σ_e p_e v_j, Σ_e p_e x_e], p the softmax of q_i·k_j + a_i·x_e + b_j·x_e + bias_e.

    Shapes are those of `kernels.edges.relational`.

    >>> from edgewise.kernels.edges import edge_index
    >>> index = edge_index(torch.tensor([0, 0]), torch.tensor([0, 1]), 1, 2)
    >>> q, k = torch.zeros(1, 1, 1, 1), torch.zeros(1, 2, 1, 1)
    >>> v, x = torch.tensor([[[[3.0]], [[5.0]]]]), torch.tensor([[[[2.0]], [[4.0]]]])
    >>> relational_attention(q, k, v, x, index).tolist()
    [[[4.0, 3.0]]]
    """
    seed = torch.randint(1 << 31, ()) if dropout else None
    out: Tensor = relate(q, k, v, x, a, b, bias, seed, values, dropout, index=index)[0]
    return out
