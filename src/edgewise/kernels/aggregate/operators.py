"""Aggregation as operators of torch: a trace keeps each of them whole, with its gradient.

`which` are the tensors of a `Gather`, laid out when grounding and never in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.aggregate import gradients
from edgewise.kernels.aggregate.index import Gather, gather_of
from edgewise.kernels.aggregate.registry import kernel


def _segments(x: Tensor, which: Sequence[Tensor]) -> Tensor:
    return x.new_empty(which[0].shape[0] - 1, x.shape[1])


@torch.library.custom_op("edgewise::gather_total", mutates_args=())
def gather_total(
    x: Tensor, scale: Tensor | None, back_scale: Tensor | None, which: Sequence[Tensor]
) -> Tensor:
    """Σ_e scale_e · x[rows_e]; `back_scale` is the same scale listed the other way, if known."""
    half = gather_of(which).forth
    return kernel("total", x, half)(x, scale, half)


@gather_total.register_fake
def _(
    x: Tensor, scale: Tensor | None, back_scale: Tensor | None, which: Sequence[Tensor]
) -> Tensor:
    return _segments(x, which)


def _keep_total(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, scale, back_scale, which = inputs
    # rows are needed for the gradient of a scale only
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, scale, back_scale, *which)


def _total_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, scale, back_scale, *which = ctx.saved_tensors
    found = gradients.of_total(
        traced, ctx.needs_input_grad, grad, (x, scale, back_scale), gather_of(which)
    )
    return *found, None, [None] * len(which)


gather_total.register_autograd(_total_gradients, setup_context=_keep_total)


@torch.library.custom_op("edgewise::gather_dots", mutates_args=())
def gather_dots(y: Tensor, x: Tensor, which: Sequence[Tensor]) -> Tensor:
    """y_s · x[rows_e] for each entry."""
    half = gather_of(which).forth
    return kernel("dots", x, half)(y, x, half)


@gather_dots.register_fake
def _(y: Tensor, x: Tensor, which: Sequence[Tensor]) -> Tensor:
    return x.new_empty(which[1].shape[0])


def _keep_dots(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    y, x, which = inputs
    ctx.save_for_backward(y, x, *which)


def _dots_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    y, x, *which = ctx.saved_tensors
    found = gradients.of_dots(traced, ctx.needs_input_grad, grad, y, x, gather_of(which))
    return *found, [None] * len(which)


gather_dots.register_autograd(_dots_gradients, setup_context=_keep_dots)


@torch.library.custom_op("edgewise::gather_extreme", mutates_args=())
def gather_extreme(x: Tensor, largest: bool, which: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The largest or smallest x[rows_e], and how many entries have it."""
    half = gather_of(which).forth
    found: tuple[Tensor, Tensor] = kernel("extreme", x, half)(x, largest, half)
    return found


@gather_extreme.register_fake
def _(x: Tensor, largest: bool, which: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    return _segments(x, which), _segments(x, which)


def _keep_extreme(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, _, which = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(x, *output, *which)


def _extreme_gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Any, ...]:
    x, top, ties, *which = ctx.saved_tensors
    found = gradients.of_extreme(traced, grad, x, top, ties, gather_of(which))
    return found, None, [None] * len(which)


gather_extreme.register_autograd(_extreme_gradients, setup_context=_keep_extreme)


@torch.library.custom_op("edgewise::gather_equal_total", mutates_args=())
def gather_equal_total(a: Tensor, x: Tensor, y: Tensor, which: Sequence[Tensor]) -> Tensor:
    """Σ_e a[rows_e] where x[rows_e] equals y_s."""
    half = gather_of(which).forth
    return kernel("equal_total", x, half)(a, x, y, half)


@gather_equal_total.register_fake
def _(a: Tensor, x: Tensor, y: Tensor, which: Sequence[Tensor]) -> Tensor:
    return _segments(a, which)


def _keep_equal(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, x, y, which = inputs
    ctx.save_for_backward(x, y, *which)


def _equal_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, y, *which = ctx.saved_tensors
    found = gradients.of_equal_total(traced, grad, x, y, gather_of(which))
    return found, None, None, [None] * len(which)


gather_equal_total.register_autograd(_equal_gradients, setup_context=_keep_equal)


class _Traced:
    """The operations on a `Gather`, as operators."""

    def total(
        self, x: Tensor, scale: Tensor | None, back_scale: Tensor | None, which: Gather
    ) -> Tensor:
        return gather_total(x, scale, back_scale, which.tensors)

    def dots(self, y: Tensor, x: Tensor, which: Gather) -> Tensor:
        return gather_dots(y, x, which.tensors)

    def extreme(self, x: Tensor, largest: bool, which: Gather) -> Tensor:
        return gather_extreme(x, largest, which.tensors)[0]

    def equal_total(self, a: Tensor, x: Tensor, y: Tensor, which: Gather) -> Tensor:
        return gather_equal_total(a, x, y, which.tensors)


traced = _Traced()
