"""Sums of messages as an operation with gradients: an autograd function, operators in a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.edges.messages import MessageIndex, Messages, reference
from edgewise.kernels.edges.operators import (
    PLAIN,
    of_one_precision,
    refuse_forward_mode,
)
from edgewise.kernels.edges.registry import function


def segment_messages(
    leaves: Sequence[Tensor], messages: Messages, index: MessageIndex
) -> tuple[Tensor, ...]:
    """The sum of each message over each segment; leaves are (rows, d), or (rows, 1) of numbers.

    >>> from edgewise.kernels.edges.messages import message_index
    >>> index = message_index([torch.tensor([0, 0, 1]), torch.tensor([2, 0, 2])], (2, 3))
    >>> x, edge = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [-9.0], [2.0]])
    >>> [y] = segment_messages([x, edge], Messages.of("1w ew; 0 1 add relu"), index)
    >>> y.tolist()
    [[4.0], [5.0]]
    """
    inputs = of_one_precision(tuple(leaves))
    plain = all(type(x) in PLAIN and not x.is_meta for x in inputs)
    if torch.compiler.is_compiling() or not plain or get_proxy_mode() is not None:
        return tuple(_sums(list(inputs), messages.text, index.tensors))
    found: tuple[Tensor, ...] = _Summed.apply(messages, index, *inputs)
    return found


def _computed(messages: Messages, leaves: Sequence[Tensor], index: MessageIndex) -> Any:
    return function("segment_messages", *_key(leaves))(messages, leaves, index)


def _differentiated(
    messages: Messages,
    leaves: Sequence[Tensor],
    grads: Sequence[Tensor],
    needs: Sequence[bool],
    index: MessageIndex,
) -> list[Tensor | None]:
    """Where gradients are differentiated again, they are those of gathers and sums of torch."""
    wanted = [at for at, needed in enumerate(needs) if needed]
    if torch.is_grad_enabled() and any(x.requires_grad for x in (*leaves, *grads)):
        some = [leaves[at] for at in wanted]
        y = reference(messages, leaves, index)
        found = dict(zip(wanted, torch.autograd.grad(
            y, some, grads, create_graph=True, allow_unused=True), strict=True))  # fmt: skip
    else:
        compute = function("message_gradients", *_key(leaves))
        found = compute(messages, leaves, grads, wanted, index)
    return [found.get(at) for at in range(len(leaves))]


def _key(leaves: Sequence[Tensor]) -> tuple[int, torch.dtype, str]:
    return max(x.shape[-1] for x in leaves), leaves[0].dtype, leaves[0].device.type


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(messages: Messages, index: MessageIndex, *leaves: Tensor) -> Any:
        with without_autocast(leaves[0]):
            return _computed(messages, [x.resolve_neg() for x in leaves], index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.messages, ctx.index, *leaves = inputs
        ctx.save_for_backward(*leaves)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad[2:]
        with without_autocast(grads[0]):
            return (
                None,
                None,
                *_differentiated(ctx.messages, ctx.saved_tensors, grads, needs, ctx.index),
            )

    @staticmethod
    def vmap(info: Any, in_dims: Any, messages: Any, index: Any, *leaves: Tensor) -> Any:
        """One call for each element of the batch."""
        found = [
            _Summed.apply(
                messages,
                index,
                *(
                    x if axis is None else x.select(axis, n)
                    for x, axis in zip(leaves, in_dims[2:], strict=True)
                ),
            )
            for n in range(info.batch_size)
        ]
        return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode("segment_messages")


@torch.library.custom_op(
    "edgewise::segment_messages",
    mutates_args=(),
    schema="(Tensor[] leaves, str messages, Tensor[] index) -> Tensor[]",
)
def _sums(leaves: list[Tensor], messages: str, index: list[Tensor]) -> list[Tensor]:
    return list(_computed(Messages.of(messages), leaves, MessageIndex.of(index)))


@_sums.register_fake
def _(leaves: list[Tensor], messages: str, index: list[Tensor]) -> list[Tensor]:
    rows, width = MessageIndex.of(index).segments, max(x.shape[1] for x in leaves)
    return [leaves[0].new_empty(rows, width) for _ in Messages.of(messages).outputs]


@torch.library.custom_op(
    "edgewise::message_gradients",
    mutates_args=(),
    schema="(Tensor[] leaves, Tensor[] grads, str messages, int[] wanted, Tensor[] index)"
    " -> Tensor[]",
)
def _gradients(
    leaves: list[Tensor], grads: list[Tensor], messages: str, wanted: list[int], index: list[Tensor]
) -> list[Tensor]:
    needs = [at in wanted for at in range(len(leaves))]
    found = _differentiated(Messages.of(messages), leaves, grads, needs, MessageIndex.of(index))
    return [x for x in found if x is not None]


@_gradients.register_fake
def _(
    leaves: list[Tensor], grads: list[Tensor], messages: str, wanted: list[int], index: list[Tensor]
) -> list[Tensor]:
    return [leaves[at].new_empty(leaves[at].shape) for at in wanted]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    leaves, ctx.messages, index = inputs
    ctx.leaves = len(leaves)
    ctx.wanted = [at for at, x in enumerate(leaves) if x.requires_grad]
    ctx.save_for_backward(*leaves, *index)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    leaves, index = ctx.saved_tensors[: ctx.leaves], ctx.saved_tensors[ctx.leaves :]
    found = iter(_gradients(list(leaves), grads, ctx.messages, ctx.wanted, list(index)))
    each = [next(found) if at in ctx.wanted else None for at in range(ctx.leaves)]
    return each, None, [None] * len(index)


_sums.register_autograd(_backward, setup_context=_save)
