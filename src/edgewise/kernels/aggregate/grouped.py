"""A matrix of a family times each row, as operators of torch: y_r = W[member_r] x_r.

Their gradients are each other: x has `grouped_linear` with the matrices transposed, the family
has `grouped_outer`, the sum of y_r x_rᵀ over the rows of each member.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.aggregate import per_member, triton_grouped
from edgewise.kernels.aggregate.grouping import Grouping, grouping_of
from edgewise.kernels.chosen import Chosen, is_watched, note


def grouped(x: Tensor, family: Tensor, groups: Grouping) -> Tensor:
    """x is (rows, d), the family (members, m, d); gives (rows, m)."""
    return grouped_linear(x, family, groups.tensors)


def chosen(x: Tensor) -> ModuleType:
    """The kernel for rows like these."""
    refused = triton_grouped.refuses(x.dtype, x.device.type)
    if is_watched():
        note(_choice(refused))
    return triton_grouped if refused is None else per_member


def _choice(refused: str | None) -> Chosen:
    if refused is None:
        return Chosen(
            "products", "triton_grouped", (("per_member", "triton_grouped is asked first"),)
        )
    return Chosen("products", "per_member", (("triton_grouped", refused),))


@torch.library.custom_op("edgewise::grouped_linear", mutates_args=())
def grouped_linear(x: Tensor, family: Tensor, groups: Sequence[Tensor]) -> Tensor:
    found: Tensor = chosen(x).linear(x, family, grouping_of(groups))
    return found


@grouped_linear.register_fake
def _(x: Tensor, family: Tensor, groups: Sequence[Tensor]) -> Tensor:
    return x.new_empty(x.shape[0], family.shape[1])


def _keep_linear(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, family, groups = inputs
    ctx.save_for_backward(x, family, *groups)


def _linear_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, family, *groups = ctx.saved_tensors
    for_x = grouped_linear(grad, family.mT, groups) if ctx.needs_input_grad[0] else None
    for_family = grouped_outer(grad, x, groups) if ctx.needs_input_grad[1] else None
    return for_x, for_family, [None] * len(groups)


grouped_linear.register_autograd(_linear_gradients, setup_context=_keep_linear)


@torch.library.custom_op("edgewise::grouped_outer", mutates_args=())
def grouped_outer(y: Tensor, x: Tensor, groups: Sequence[Tensor]) -> Tensor:
    found: Tensor = chosen(x).outer(y, x, grouping_of(groups))
    return found


@grouped_outer.register_fake
def _(y: Tensor, x: Tensor, groups: Sequence[Tensor]) -> Tensor:
    return x.new_empty(groups[1].shape[0] - 1, y.shape[1], x.shape[1])


def _keep_outer(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    y, x, groups = inputs
    ctx.save_for_backward(y, x, *groups)


def _outer_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    y, x, *groups = ctx.saved_tensors
    for_y = grouped_linear(x, grad, groups) if ctx.needs_input_grad[0] else None
    for_x = grouped_linear(y, grad.mT, groups) if ctx.needs_input_grad[1] else None
    return for_y, for_x, [None] * len(groups)


grouped_outer.register_autograd(_outer_gradients, setup_context=_keep_outer)
