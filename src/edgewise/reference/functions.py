"""Functions on single values, as their table defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.functions import Law
from edgewise.functions.values import canonical
from edgewise.language import nodes
from edgewise.language.functions import arguments, definition


def transform(function: nodes.Function, x: Tensor, training: bool) -> Tensor:
    found, options = definition(function), arguments(function)
    if Law.RANDOM in found and not training:
        return x
    module = options["module"].thing if Law.OPAQUE in found else None
    if not isinstance(module, torch.nn.Module):
        return canonical(found.value(x, **options))
    before = module.training  # it is left in the mode that it had
    module.train(training)
    try:
        return canonical(found.value(x, **options))
    finally:
        module.train(before)


def combine(function: nodes.Function, values: Sequence[Tensor]) -> Tensor:
    return canonical(definition(function).value(values, **arguments(function)))


def aggregate(function: nodes.Function, values: Sequence[Tensor]) -> Tensor:
    """The groundings of one rule head, in key order, become one value."""
    return canonical(definition(function).value(values, **arguments(function)))


def normalise(function: nodes.Function, values: Sequence[Tensor]) -> list[Tensor]:
    """The rule heads of one group, each with its share."""
    shares = definition(function).shares
    assert shares is not None
    found: list[Tensor] = shares[0](values)
    return found


def exact(thing: Any, dtype: torch.dtype) -> Tensor:
    """Numbers as a tensor of `dtype`, without a detour through another precision.

    >>> exact(0.1, torch.float64).item()
    0.1
    """
    if isinstance(thing, int | float | tuple | list):
        return torch.as_tensor(thing, dtype=dtype)
    return torch.as_tensor(thing).to(dtype)
