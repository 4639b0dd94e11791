"""Functions on columns of values, as their table defines them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from edgewise.functions import DEFINITIONS, Law
from edgewise.functions.columns import shape_of
from edgewise.functions.definition import CallFailed, no_such_row
from edgewise.functions.rowwise import call_failed
from edgewise.language import nodes
from edgewise.language.functions import arguments, definition
from edgewise.layouts.ragged import Segments
from edgewise.physical.lowering_state import Column, column
from edgewise.physical.opaque import opaque
from edgewise.physical.result_shapes import described


class Engine:
    """What functions that are more than tensor operations need of the engine."""

    @staticmethod
    def mapped(data: Tensor, module: nodes.Opaque) -> Tensor:
        """A module of the user, applied to every value."""
        try:
            return _called(data, module)
        except CallFailed:
            raise
        except Exception as problem:
            raise call_failed(module, problem, shape_of(data)) from problem

    @staticmethod
    def row_numbers(number: Tensor, rows: int) -> Tensor:
        return _row_numbers(number, rows)


def _like_called(data: Tensor, thing: Any) -> Tensor:
    """The shape that a module gives, found without its numbers: they may change when it runs."""
    thing = thing.thing if isinstance(thing, nodes.Opaque) else thing
    x = torch.empty(data.shape, dtype=data.dtype, device="meta")
    if not isinstance(thing, torch.nn.Module):
        return _of_each_row(x, thing)
    held = {**dict(thing.named_parameters()), **dict(thing.named_buffers())}
    bare = {name: torch.empty_like(t, device="meta") for name, t in held.items()}
    return _of_each_row(x, lambda one: torch.func.functional_call(thing, bare, (one,)))


def _of_each_row(data: Tensor, thing: Callable[[Tensor], Tensor]) -> Tensor:
    each = torch.vmap(torch.vmap(thing, randomness="different"), randomness="different")
    return each(data)


_map = opaque(like=_like_called)(_of_each_row)


@opaque(like=_like_called, operators=lambda data, module: _map(data, module.thing))
def _called(data: Tensor, module: nodes.Opaque) -> Tensor:
    try:
        return _of_each_row(data, module.thing)
    except Exception as problem:
        raise call_failed(module, problem, shape_of(data)) from problem


def _integers(number: Tensor, rows: int) -> Tensor:
    kind = torch.int64 if number.is_floating_point() else number.dtype
    return torch.empty(number.shape, dtype=kind, device="meta")


@opaque(like=_integers, operators=lambda number, rows: number.long())
def _row_numbers(number: Tensor, rows: int) -> Tensor:
    """Numbers as rows of a table; integers on a GPU are not looked at: that would wait for it."""
    found = number.long() if number.is_floating_point() else number
    traced = isinstance(found, FakeTensor) or torch.compiler.is_compiling() or found.is_meta
    cheap = found.device.type == "cpu" or number.is_floating_point()
    if not traced and cheap:
        wrong = (found < 0) | (found >= rows) | (found != number)
        if bool(wrong.any()):
            raise no_such_row(float(number[wrong][0]), rows)
    return found


def _options(function: nodes.Function) -> dict[str, Any]:
    engine = definition(function).laws & {Law.OPAQUE, Law.CHECKED}
    return arguments(function) | ({"engine": Engine} if engine else {})


def transform(function: nodes.Function, x: Column, training: bool) -> Column:
    """A transformation, row by row."""
    found = definition(function)
    if Law.KEEPS_ONE in found or (Law.RANDOM in found and not training):
        return x
    data = found.columns(x.data, **_options(function))
    return Column(data) if Law.ELEMENTWISE in found else column(data)


def combine(function: nodes.Function, columns: Sequence[Column], training: bool = False) -> Column:
    found = definition(function)
    if training and found.in_training is not None:
        return column(found.in_training([c.data for c in columns], **arguments(function)))
    if len(columns) == 1 and Law.KEEPS_ONE in found:
        return columns[0]
    return column(found.columns([c.data for c in columns], **_options(function)))


def aggregate(function: nodes.Function, data: Tensor, parts: Segments) -> Tensor:
    """One value for each segment; one node, where there are kernels for it."""
    found = definition(function)
    if parts.trivial and Law.KEEPS_ONE in found:
        return data
    if found.kernel is not None:
        return aggregate_segments(data, function.name, parts)
    reduced: Tensor = found.columns(data, parts, **arguments(function))
    return reduced


def _like_segments(data: Tensor, name: str, parts: Segments) -> Tensor:
    return described((data.shape[0], parts.count, *data.shape[2:]), data.dtype)


@opaque(like=_like_segments)
def aggregate_segments(data: Tensor, name: str, parts: Segments) -> Tensor:
    """A sum, mean, maximum or minimum: rewritten by passes, or to its definition at the end."""
    found: Tensor = DEFINITIONS[name].columns(data, parts)
    return found


def normalise(function: nodes.Function, data: Tensor, groups: Segments) -> Tensor:
    """The share that each row has of its group."""
    shares = definition(function).shares
    assert shares is not None
    found: Tensor = shares[1](data, groups)
    return found
