"""Functions that are one operation on a tape, whatever they do inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

Found = TypeVar("Found", Tensor, list[Tensor])
Prepare = Callable[..., Callable[[Tensor], Any]]


def whole(function: Callable[..., Found], prepare: Prepare | None = None) -> Callable[..., Found]:
    """The same function, kept whole; for those with a backward pass of their own.

    `prepare(*others)` gives the function of the first argument alone, where the others stay.
    """
    if prepare is not None:
        PREPARE[function] = prepare

    @wraps(function)
    def call(first: Tensor, *arguments: Any, **options: Any) -> Found:
        if torch.compiler.is_compiling() or not has_torch_function_unary(first):
            return function(first, *arguments, **options)
        found: Found = handle_torch_function(function, (first,), first, *arguments, **options)
        return found

    return call


PREPARE: dict[Callable[..., Any], Prepare] = {}
