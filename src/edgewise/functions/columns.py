"""Columns of values, (batch, rows, value...), as tensors: how they broadcast and multiply.

A batch of 1 and a single row broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgewise.functions.definition import cannot_multiply, not_elementwise

if TYPE_CHECKING:
    from torch import Tensor


def shape_of(column: Tensor) -> tuple[int, ...]:
    """The shape of one value."""
    return tuple(column.shape[2:])


def canonical(data: Tensor, lead: int = 2) -> Tensor:
    """Values after `lead` axes in canonical form: n×1 is a column vector, 1×1 a scalar."""
    match tuple(data.shape[lead:]):
        case (1,) | (1, 1):
            return data.reshape(data.shape[:lead])
        case (_, 1):
            return data.squeeze(-1)
    return data


def unsqueezed(data: Tensor, rank: int) -> Tensor:
    """Values with unit axes appended, to broadcast with values of `rank` axes."""
    return data.reshape(*data.shape, *(1,) * (rank + 2 - data.ndim))


def broadcast(columns: Sequence[Tensor]) -> list[Tensor]:
    """Columns whose values broadcast: all of one shape, or scalars."""
    shapes = {shape_of(c) for c in columns if c.ndim > 2}
    if len(shapes) > 1:
        raise not_elementwise(shapes)
    rank = max(c.ndim for c in columns) - 2
    return [unsqueezed(c, rank) for c in columns]


def stack(columns: Sequence[Tensor]) -> Tensor:
    """(operands, batch, rows, value...)."""
    import torch

    data = broadcast(columns)
    shape = torch.broadcast_shapes(*(d.shape for d in data))
    return torch.stack([d.expand(shape) for d in data])


def flat(columns: Sequence[Tensor]) -> list[Tensor]:
    """Every value as a vector, for as many rows: (batch, rows, numbers)."""
    import torch

    vectors = [c.flatten(2) if c.ndim > 2 else c.unsqueeze(-1) for c in columns]
    shape = torch.broadcast_shapes(*(v.shape[:2] for v in vectors))
    return [v.expand(*shape, v.shape[-1]) for v in vectors]


def product(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product in each row; a scalar scales."""
    if left.ndim == 2 or right.ndim == 2:
        a, b = broadcast([left, right])
        return a * b
    if (left.shape[3] if left.ndim == 4 else 1) != right.shape[2]:
        raise cannot_multiply(shape_of(left), shape_of(right))
    match left.ndim, right.ndim:
        case 3, _:  # a column times a row
            return canonical(left.unsqueeze(-1) * right)
        case 4, 3:
            return canonical(_times_vector(left, right))
    return canonical(left @ right)


def _times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    import torch

    if matrix.shape[:2] == (1, 1):  # one weight for all rows: one matrix product
        return torch.nn.functional.linear(vector, matrix[0, 0])
    if matrix.shape[0] == vector.shape[1] == 1:  # many weights for one row: one product as well
        found = torch.nn.functional.linear(vector, matrix[0].flatten(0, 1))
        return found.reshape(len(vector), *matrix.shape[1:3])
    if matrix.shape[2] == 1:  # a row times a column: a dot product in each row
        return (matrix.squeeze(2) * vector).sum(-1, keepdim=True)
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def softmax(x: Tensor, dim: int) -> Tensor:
    """eˣ / Σ eˣ; 0 where all are −∞, as a sum over no keys is: nothing has a weight.

    >>> import torch
    >>> softmax(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]), 1)
    tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]])
    """
    import torch

    found: Tensor = torch.ops.aten._safe_softmax(x, dim)
    return found


def sparsemax(x: Tensor, dim: int) -> Tensor:
    """The point of the simplex nearest to x: max(x − τ, 0) with τ such that it sums to 1.

    >>> import torch
    >>> sparsemax(torch.tensor([1.0, 1.4, 0.2]), 0)
    tensor([0.3000, 0.7000, 0.0000])

    No point is near what is infinite or not a number.

    >>> sparsemax(torch.tensor([1.0, torch.inf]), 0)
    tensor([nan, nan])
    """
    import torch

    ordered = x.sort(dim=dim, descending=True).values
    sizes = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype, device=x.device)
    sizes = sizes.reshape([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)])
    totals = ordered.cumsum(dim) - 1
    support = (sizes * ordered > totals).sum(dim, keepdim=True)
    threshold = totals.gather(dim, support.clamp(min=1) - 1) / support
    threshold = threshold.masked_fill(support == 0, torch.nan)
    return (x - threshold).clamp(min=0)
