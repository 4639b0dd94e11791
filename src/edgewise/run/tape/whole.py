"""Functions that are one operation on a tape, whatever they do inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary


def whole(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function, kept whole; for those with a backward pass of their own."""

    @wraps(function)
    def call(first: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if torch.compiler.is_compiling() or not has_torch_function_unary(first):
            return function(first, *arguments, **options)
        found: Tensor = handle_torch_function(function, (first,), first, *arguments, **options)
        return found

    return call
