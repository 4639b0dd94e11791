"""Values as PyNeuraLogic writes them: numbers, lists, arrays, and shapes as tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.errors import BadTemplate

Value = float | list[float] | list[list[float]]


@dataclass(frozen=True, eq=False)
class WeightForm:
    """The shape of a weight: () a number, (n,) a column, (1, n) a row, (m, n); its value if any."""

    shape: tuple[int, ...]
    value: Tensor | None = None


def weight_form(item: Any) -> WeightForm:
    """A tuple is a shape, anything else a value."""
    if isinstance(item, tuple):
        is_shape = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in item)
        if not is_shape or not 1 <= len(item) <= 2:
            raise BadTemplate(
                f"`{safe_repr(item)}` is not a shape",
                caller(),
                "write one or two positive sizes, `[3, 2]`; put a value into a list",
            )
        return WeightForm(_normal(item))
    value = tensor(item)
    return WeightForm(tuple(value.shape), value)


def _normal(shape: tuple[int, ...]) -> tuple[int, ...]:
    """n×1 is a column, 1×1 a number."""
    shape = shape[:1] if len(shape) == 2 and shape[1] == 1 else shape
    return () if shape == (1,) else shape


def tensor(item: Any) -> Tensor:
    """A value as a tensor: a number, a column, a row or a matrix."""
    try:
        if isinstance(item, Tensor):
            found = item.to(torch.float64)
        elif hasattr(item, "__array__"):
            found = torch.as_tensor(item.tolist(), dtype=torch.float64)
        else:
            found = torch.tensor(_plain(item), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = torch.zeros(0)
    if found.dim() > 2 or found.numel() == 0:
        raise BadTemplate(
            f"`{safe_repr(item)}` is not a value",
            caller(),
            "a value is a number, a list of numbers or a list of lists of one length",
        )
    return found.reshape(_normal(tuple(found.shape))) if found.numel() > 1 else found.reshape(())


def _plain(item: Any) -> Any:
    if isinstance(item, list | tuple):
        return [_plain(one) for one in item]
    return float(item)


def plain(value: Tensor) -> Any:
    """A tensor as PyNeuraLogic returns it: a number, or lists."""
    return value.item() if value.numel() == 1 and value.dim() == 0 else value.tolist()
