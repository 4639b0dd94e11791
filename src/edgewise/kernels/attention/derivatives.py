"""Derivatives of kernels whose gradients are written by hand: the first one, backwards."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.errors import caller
from edgewise.kernels.attention.errors import NoTransform, SecondDerivative

FUSED = (
    "ScaledDotProduct"  # how torch's nodes of fused attention are named; their gradient has none
)


def refuse_transforms(kernel: str, *tensors: Tensor | None) -> None:
    """An error for tensors inside `torch.func`."""
    if torch._C._are_functorch_transforms_active():
        _refuse(kernel, "be transformed by `torch.func`")
    refuse_forward_mode(kernel, *tensors)


def refuse_forward_mode(kernel: str, *tensors: Tensor | None) -> None:
    """An error for tensors that carry a derivative with them."""
    if forward_ad._current_level < 0:
        return
    if any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        _refuse(kernel, "be differentiated in forward mode")


def _refuse(kernel: str, what: str) -> None:
    raise NoTransform(
        f"the kernel `{kernel}` cannot {what}",
        caller(),
        'use `kernel="reference"`; for `vmap`, give a batch: any axes may stand before the heads',
    )


def refuse_second(kernel: str) -> None:
    """An error where the gradient is to be differentiated itself."""
    raise SecondDerivative(
        f"the gradient of the kernel `{kernel}` cannot be differentiated",
        caller(),
        'use `kernel="reference"`, or `create_graph=False` if this was not meant',
    )


def once(out: Tensor, kernel: str) -> Tensor:
    """The output of PyTorch's own attention, which says less where it has no second derivative."""
    fused = out.grad_fn is not None and out.grad_fn.name().startswith(FUSED)
    if fused and not torch._C._are_functorch_transforms_active():
        out.register_hook(lambda grad: refuse_second(kernel) if torch.is_grad_enabled() else None)
    return out
