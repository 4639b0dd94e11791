"""Functions that are one node of a graph, whatever they do inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from edgewise.kernels.edges.operators import Operation
from edgewise.kernels.edges.registry import EdgeOperation, note_choice
from edgewise.physical.result_shapes import described
from edgewise.physical.symbols import Symbol

Found = TypeVar("Found", Tensor, list[Tensor], tuple[Tensor, ...])


@dataclass(frozen=True)
class OpaqueNode:
    """`like` gives meta tensors of the shapes of results, `operators` the same result by operators
    of torch, for tracers that cannot look inside; `prepare(*others)` the function of the first
    argument alone, where the others stay."""

    like: Callable[..., Any]
    operators: Callable[..., Any] | None = None
    prepare: Callable[..., Callable[[Tensor], Any]] | None = None


_OPAQUE: dict[Callable[..., Any], OpaqueNode] = {}


def opaque(
    like: Callable[..., Any],
    operators: Callable[..., Any] | None = None,
    prepare: Callable[..., Callable[[Tensor], Any]] | None = None,
) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """Make a function one node of a graph."""

    def decorate(function: Callable[..., Found]) -> Callable[..., Found]:
        _OPAQUE[function] = OpaqueNode(like, operators, prepare)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Found:
            tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
            tensors += [t for a in args if isinstance(a, list) for t in a]
            symbolic = any(type(t) is Symbol for t in tensors)  # a trace lowers the step as well
            traced = torch.compiler.is_compiling() and not symbolic
            if traced or not has_torch_function(tensors):
                return function(*args, **kwargs)
            found: Found = handle_torch_function(function, tensors, *args, **kwargs)
            return found

        return call

    return decorate


def find_opaque(function: Any) -> OpaqueNode | None:
    """What is known of a function that is one node; None if of torch."""
    if isinstance(function, Operation):
        return OpaqueNode(partial(_like_operation, function), partial(_as_operator, function))
    return _OPAQUE.get(function)


def _like_operation(operation: Operation, *inputs: Any, index: Any) -> Any:
    rows = [x for x in inputs if isinstance(x, Tensor) and x.ndim > 1]
    width = max(x.shape[-1] for x in rows)
    note_choice(EdgeOperation(operation.__name__, width, rows[0].dtype, rows[0].device.type))
    metas = [described(x.shape, x.dtype) if isinstance(x, Tensor) else x for x in inputs]
    return operation.operator(*metas, index.tensors)


def _as_operator(operation: Operation, *inputs: Any, index: Any) -> Any:
    return operation.operator(*inputs, index.tensors)


def prepared(function: Any) -> Callable[..., Callable[[Tensor], Any]] | None:
    """How an opaque function is made ready for one that knows all arguments but the first."""
    found = None if isinstance(function, str) else _OPAQUE.get(function)
    return None if found is None else found.prepare


def is_opaque(function: Any) -> bool:
    """Whether a node calls a kernel."""
    return not isinstance(function, str) and find_opaque(function) is not None
