"""Single values, as the reference computes: scalars, columns (n,), rows (1, n) and matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgewise.functions.definition import ShapeMismatch, cannot_multiply, not_elementwise
from edgewise.functions.dimensions import show

if TYPE_CHECKING:
    from torch import Tensor


def canonical(value: Tensor) -> Tensor:
    """n×1 is a column, 1×1 a scalar.

    >>> import torch
    >>> canonical(torch.ones(3, 1)).shape, canonical(torch.ones(1, 1)).shape
    (torch.Size([3]), torch.Size([]))
    """
    if value.numel() == 1:
        return value.reshape(())
    return value.squeeze(1) if value.ndim == 2 and value.shape[1] == 1 else value


def product(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product; a scalar scales.

    >>> import torch
    >>> product(torch.ones(3), torch.ones(1, 4)).shape  # a column times a row
    torch.Size([3, 4])
    """
    if left.ndim == 0 or right.ndim == 0:
        return left * right
    a = left.unsqueeze(1) if left.ndim == 1 else left
    b = right.unsqueeze(1) if right.ndim == 1 else right
    if a.shape[1] != b.shape[0]:
        raise cannot_multiply(tuple(left.shape), tuple(right.shape))
    return canonical(a @ b)


def aligned(values: Sequence[Tensor]) -> Tensor:
    """The values stacked: equal shapes; scalars broadcast."""
    import torch

    shapes = {tuple(value.shape) for value in values if value.ndim}
    if len(shapes) > 1:
        raise not_elementwise(shapes)
    shape = shapes.pop() if shapes else ()
    return torch.stack([value.expand(shape) for value in values])


def of_stacked(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of a list of values, from one of all of them stacked."""
    return lambda items, **options: function(aligned(items), **options)


def scalars(values: Sequence[Tensor], name: str) -> Tensor:
    import torch

    vector = next((value for value in values if value.ndim), None)
    if vector is not None:
        raise ShapeMismatch(
            f"`{name}` takes scalars, got {show(tuple(vector.shape))}",
            help="reduce the values to scalars first",
        )
    return torch.stack(list(values))


def softmax(x: Tensor) -> Tensor:
    """Of a vector: eˣ / Σ eˣ; 0 where all are −∞."""
    lowest = x == -float("inf")
    return x.masked_fill(lowest, 0) * 0 if bool(lowest.all()) else x.softmax(0)


def sparsemax(x: Tensor) -> Tensor:
    """Of a vector: max(x − τ, 0), where the largest numbers that share 1 decide τ."""
    ordered = x.sort(descending=True).values
    for k in range(len(x), 0, -1):
        threshold = (ordered[:k].sum() - 1) / k
        if ordered[k - 1] > threshold:
            return (x - threshold).clamp(min=0)
    return x * float("nan")  # infinite, or not a number
