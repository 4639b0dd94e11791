"""Values: scalars, columns stored (n,), rows (1, n) and matrices; and how they meet."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.mismatch import ShapeMismatch


def exact(thing: Any, dtype: torch.dtype) -> Tensor:
    """Numbers as a tensor of `dtype`, without a detour through another precision.

    >>> exact(0.1, torch.float64).item()
    0.1
    """
    if isinstance(thing, int | float | tuple | list):
        return torch.as_tensor(thing, dtype=dtype)
    return torch.as_tensor(thing).to(dtype)


def canonical(value: Tensor) -> Tensor:
    """n×1 is a column, 1×1 a scalar.

    >>> canonical(torch.ones(3, 1)).shape, canonical(torch.ones(1, 1)).shape
    (torch.Size([3]), torch.Size([]))
    """
    if value.numel() == 1:
        return value.reshape(())
    return value.squeeze(1) if value.ndim == 2 and value.shape[1] == 1 else value


def product(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product; a scalar scales.

    >>> product(torch.ones(3), torch.ones(1, 4)).shape  # a column times a row
    torch.Size([3, 4])
    """
    if left.ndim == 0 or right.ndim == 0:
        return left * right
    a = left.unsqueeze(1) if left.ndim == 1 else left
    b = right.unsqueeze(1) if right.ndim == 1 else right
    if a.shape[1] != b.shape[0]:
        raise ShapeMismatch(
            f"cannot multiply {show(left)} by {show(right)}: {a.shape[1]} columns meet "
            f"{b.shape[0]} rows",
            help=f"a weight is (out, in); transpose with `.T`, or give it {b.shape[0]} columns",
        )
    return canonical(a @ b)


def aligned(values: Sequence[Tensor]) -> Tensor:
    """The values stacked: equal shapes, scalars spread over the others."""
    shapes = {value.shape for value in values if value.ndim}
    if len(shapes) > 1:
        raise ShapeMismatch(
            f"{' and '.join(sorted(map(_shown, shapes)))} meet element by element",
            help="elementwise operations take equal shapes, or a scalar",
        )
    shape = shapes.pop() if shapes else torch.Size()
    return torch.stack([value.expand(shape) for value in values])


def show(value: Tensor) -> str:
    return _shown(value.shape)


def _shown(shape: torch.Size) -> str:
    match tuple(shape):
        case ():
            return "a scalar"
        case (n,):
            return f"a column of {n}"
        case (1, n):
            return f"a row of {n}"
        case (m, n):
            return f"a {m}×{n} matrix"
    return f"a value of shape {tuple(shape)}"
