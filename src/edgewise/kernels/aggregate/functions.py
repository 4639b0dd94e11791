"""Aggregation as functions of autograd: what runs outside of a trace.

An operator of torch costs several times as much to call, which small graphs would notice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.aggregate import gradients
from edgewise.kernels.aggregate.index import Gather
from edgewise.kernels.aggregate.registry import kernel
from edgewise.kernels.negated import written


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, scale: Tensor | None, back_scale: Tensor | None, which: Gather
    ) -> Tensor:
        x, scale = written(x), scale if scale is None else written(scale)
        found: Tensor = kernel("total", x, which.forth)(x, scale, which.forth)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, scale, back_scale, ctx.which = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, scale, back_scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = gradients.of_total(called, ctx.needs_input_grad, grad, ctx.saved_tensors, ctx.which)
        return *found, None, None


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(y: Tensor, x: Tensor, which: Gather) -> Tensor:
        y, x = written(y), written(x)
        found: Tensor = kernel("dots", x, which.forth)(y, x, which.forth)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        y, x, ctx.which = inputs
        ctx.save_for_backward(y, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, x = ctx.saved_tensors
        return *gradients.of_dots(called, ctx.needs_input_grad, grad, y, x, ctx.which), None


class _Extreme(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, largest: bool, which: Gather) -> tuple[Tensor, Tensor]:
        x = written(x)
        found: tuple[Tensor, Tensor] = kernel("extreme", x, which.forth)(x, largest, which.forth)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, _, ctx.which = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, top, ties = ctx.saved_tensors
        return gradients.of_extreme(called, grad, x, top, ties, ctx.which), None, None


class _EqualTotal(torch.autograd.Function):
    @staticmethod
    def forward(a: Tensor, x: Tensor, y: Tensor, which: Gather) -> Tensor:
        a, x, y = written(a), written(x), written(y)
        found: Tensor = kernel("equal_total", x, which.forth)(a, x, y, which.forth)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, x, y, ctx.which = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        found = gradients.of_equal_total(called, grad, x, y, ctx.which)
        return found, None, None, None


class _Called:
    """The operations on a `Gather`, as functions of autograd."""

    def total(
        self, x: Tensor, scale: Tensor | None, back_scale: Tensor | None, which: Gather
    ) -> Tensor:
        return _Total.apply(x, scale, back_scale, which)

    def dots(self, y: Tensor, x: Tensor, which: Gather) -> Tensor:
        return _Dots.apply(y, x, which)

    def extreme(self, x: Tensor, largest: bool, which: Gather) -> Tensor:
        found: Tensor = _Extreme.apply(x, largest, which)[0]
        return found

    def equal_total(self, a: Tensor, x: Tensor, y: Tensor, which: Gather) -> Tensor:
        return _EqualTotal.apply(a, x, y, which)


called = _Called()
