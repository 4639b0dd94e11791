"""PyTorch's fused attention with its log-sum-exp, forward and backward, on either device.

Shapes are (batch, heads, rows, features); a mask is added to the scores. Rows whose keys are all
masked give zeros; their log-sum-exp is not defined. In the backward pass `out` and `lse` may
belong to a larger set of keys, and `lse` is +∞ in rows without any.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor
from torch.backends.cuda import cudnn_sdp_enabled, flash_sdp_enabled
from torch.nn import functional
from torch.nn.functional import pad
from torch.overrides import handle_torch_function, has_torch_function

from edgewise.kernels.attention.errors import SDPA, refuse_context_parallel, refuse_second

aten = torch.ops.aten
FLASH_ON_CPU = torch._scaled_dot_product_flash_attention_for_cpu
FUSED = "ScaledDotProduct"  # of names of torch's nodes, whose gradient has none
FLASH_WIDEST = 256  # features
SHORT = 16  # keys; with fewer and no mask, a row of NaN comes out of PyTorch as 0 on a CPU


@lru_cache
def _hopper() -> bool:
    return torch.cuda.get_device_capability()[0] >= 9


@lru_cache
def flash_on_gpu() -> bool:
    """Whether torch has flash attention for the GPU, if there is one: from Ampere on."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] >= 8


def fuses_groups(dtype: torch.dtype, d: int, dv: int) -> bool:
    """Whether torch has a kernel for the GPU that reads keys once for all heads that share them:
    its flash attention and cuDNN's."""
    return dtype.itemsize == 2 and d == dv <= FLASH_WIDEST and d % 8 == 0 and flash_on_gpu()


def cudnn() -> bool:
    """cuDNN's attention is faster from Hopper on; its backward pass is not deterministic."""
    return _hopper() and not torch.are_deterministic_algorithms_enabled()


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    grouped: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention`: the output alone, by PyTorch's own dispatch and autograd.

    `grouped` says that heads share keys. A `TorchFunctionMode` sees one function.
    """
    traced = torch.compiler.is_compiling()
    if not traced and has_torch_function((q, k, v)):
        return handle_torch_function(
            fused, (q, k, v), q, k, v, scale,
            causal=causal, mask=mask, dropout=dropout, grouped=grouped,
        )  # fmt: skip
    if functional.scaled_dot_product_attention is not SDPA:
        refuse_context_parallel()
    if not traced:
        if mask is None and k.shape[-2] < SHORT:
            causal, mask = minding_nan(q, k, causal)
        if q.is_cuda:
            q, k, v = aligned(q, k, v)
        if grouped and not (flash_sdp_enabled() or cudnn_sdp_enabled()):  # others know no groups
            times, grouped = q.shape[1] // k.shape[1], False
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    out = SDPA(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale,
        enable_gqa=grouped,
    )  # fmt: skip
    return out if traced else _once(out)


def aligned(*tensors: Tensor) -> list[Tensor]:
    """Copies of those that do not start at a multiple of 16 bytes: torch does not look, and cuDNN
    gives wrong numbers."""
    return [x.clone() if x.storage_offset() * x.itemsize % 16 else x for x in tensors]


def _once(out: Tensor) -> Tensor:
    """Torch's fused attention says less where its gradient is to be differentiated."""
    node = out.grad_fn
    if node is None or not node.name().startswith(FUSED):
        return out
    if not torch._C._are_functorch_transforms_active():
        out._backward_hooks = OrderedDict({-1: _refuse_second})  # a hook that stays
        node._register_hook_dict(out)
    return out


def _refuse_second(grad: Tensor) -> None:
    if torch.is_grad_enabled():
        refuse_second("dense")


def minding_nan(q: Tensor, k: Tensor, causal: bool) -> tuple[bool, Tensor | None]:
    """`causal` and a mask, for fewer than `SHORT` keys, such that what is not a number in a query
    stays so. A trace, whose sizes may vary, does without."""
    if q.is_cuda:
        return causal, None
    if not causal:
        return False, q.new_zeros(1, k.shape[-2])
    return False, q.new_full((q.shape[-2], k.shape[-2]), -torch.inf).triu(1)


def flash(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool = False, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    dv = v.shape[-1]
    if not is_even(q, k, v):
        q, k, v = even(q, k, v)
    if mask is None and k.shape[-2] < SHORT:
        causal, mask = minding_nan(q, k, causal)
    if q.is_cuda:
        q, k, v = aligned(q, k, v)
    if q.is_cuda and cudnn():
        out, lse, *_ = aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=scale
        )
        lse = lse.view(q.shape[:3])
    elif q.is_cuda:
        out, lse, *_ = aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, causal, False, scale=scale
        )
    else:
        out, lse = FLASH_ON_CPU(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    return out[..., :dv], lse


def flash_backward(
    dout: Tensor,
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    scale: float,
    *,
    causal: bool = False,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v; `saved` is (q, k, v, out, lse)."""
    q, k, v, out, lse = saved
    d, dv = q.shape[-1], v.shape[-1]
    if not is_even(q, k, v) or not is_even(q, out, dout):
        q, k, v = even(q, k, v)
        out, dout = even(q, out, dout)[1:]
    lse = lse.contiguous()
    if q.is_cuda:
        q, k, v, out, lse, dout = aligned(q, k, v, out, lse, dout)
        seed = torch.empty(2, dtype=torch.uint64, device=q.device)
        sizes = (q.shape[2], k.shape[2])
        if cudnn():
            zero = torch.zeros((), dtype=torch.int64, device=q.device)
            dq, dk, dvalue = aten._scaled_dot_product_cudnn_attention_backward(
                dout, q, k, v, out, lse[..., None], zero, zero, None, None, None, *sizes, 0.0,
                causal, scale=scale,
            )  # fmt: skip
            return dq[..., :d], dk[..., :d], dvalue[..., :dv]
        with _one_order():
            dq, dk, dvalue = aten._scaled_dot_product_flash_attention_backward(
                dout, q, k, v, out, lse, None, None, *sizes, 0.0, causal, seed, seed[:0],
                scale=scale
            )  # fmt: skip
    else:
        dq, dk, dvalue = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            dout, q, k, v, out, lse, 0.0, causal, attn_mask=mask, scale=scale
        )
    return dq[..., :d], dk[..., :d], dvalue[..., :dv]


@contextmanager
def _one_order() -> Iterator[None]:
    """Where determinism is requested, be it with warnings alone: torch's flash attention has
    one, and takes it only where anything else would be an error."""
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if not warns or not torch.are_deterministic_algorithms_enabled():
        yield
        return
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=True)


def is_even(a: Tensor, b: Tensor, c: Tensor) -> bool:
    width = a.shape[-1]
    if width != b.shape[-1] or width != c.shape[-1] or (a.is_cuda and width % 8):
        return False
    return width == 1 or a.stride(-1) == b.stride(-1) == c.stride(-1) == 1


def even(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All with one number of features, padded with zeros, that lie side by side: PyTorch's kernels
    assume it, and read beyond their inputs where it is not so."""
    widest = max(t.shape[-1] for t in tensors)
    if tensors[0].is_cuda:
        widest = -(-widest // 8) * 8
    return tuple(_wide(t, widest) for t in tensors)


def _wide(x: Tensor, width: int) -> Tensor:
    x = x if x.shape[-1] == width else pad(x, (0, width - x.shape[-1]))
    return x if x.stride(-1) == 1 or width == 1 else x.contiguous()
