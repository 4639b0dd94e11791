"""Sums of gathered rows as one operator, which a trace keeps whole together with its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def bags(x: Tensor, scale: Tensor | None, rows: Tensor, ptr: Tensor) -> Tensor:
    """Σ_e sₑ · x[rowₑ] over the entries between one pointer and the next."""
    return torch.ops.aten._embedding_bag_forward_only(x, rows, ptr, False, 0, False, scale, True)[0]


@torch.library.custom_op("edgewise::gather_sum", mutates_args=())
def gather_sum(
    x: Tensor,
    scale: Tensor | None,
    ids: Tensor,
    rows: Tensor,
    ptr: Tensor,
    order: Tensor,
    back_ptr: Tensor,
) -> Tensor:
    """The sums of each segment; `ids` to `back_ptr` are those of a `Gather`."""
    return bags(x.contiguous(), None if scale is None else scale.contiguous(), rows, ptr)


@gather_sum.register_fake
def _(
    x: Tensor,
    scale: Tensor | None,
    ids: Tensor,
    rows: Tensor,
    ptr: Tensor,
    order: Tensor,
    back_ptr: Tensor,
) -> Tensor:
    return x.new_empty(ptr.shape[0] - 1, x.shape[1])


def _saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, scale, ids, rows, ptr, order, back_ptr = ctx.saved_tensors
    for_x = for_scale = None
    if ctx.needs_input_grad[0]:
        turned = None if scale is None else scale.index_select(0, order)
        back_ids, back_rows = rows.index_select(0, order), ids.index_select(0, order)
        for_x = torch.ops.edgewise.gather_sum(
            grad, turned, back_ids, back_rows, back_ptr, order, ptr
        )
    if ctx.needs_input_grad[1]:
        for_scale = (grad.index_select(0, ids) * x.index_select(0, rows)).sum(-1)
    return for_x, for_scale, None, None, None, None, None


gather_sum.register_autograd(_gradients, setup_context=_saved)
