"""Autocast: inputs are taken in its precision, as `scaled_dot_product_attention` takes them.

Inside, kernels choose their own precision: sums and softmax in float32, as outside of autocast.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

DEVICES = ("cpu", "cuda")


def _enabled(x: Tensor) -> bool:
    kind = x.device.type if isinstance(x, Tensor) else ""
    return kind in DEVICES and torch.is_autocast_enabled(kind)


def in_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In autocast's precision where it is on; float64 stays, as everywhere in torch."""
    if not torch._C._is_any_autocast_enabled() or not any([_enabled(x) for x in tensors]):
        return tensors
    return tuple(
        x.to(torch.get_autocast_dtype(x.device.type))
        if _enabled(x) and x.is_floating_point() and x.dtype != torch.float64
        else x
        for x in tensors
    )


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    return torch.autocast(x.device.type, enabled=False) if _enabled(x) else nullcontext()
