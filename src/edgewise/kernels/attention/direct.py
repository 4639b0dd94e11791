"""A call without terms on the block kernels of a GPU: nothing between it and its launches."""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from edgewise.kernels.attention import memory, triton_blocks
from edgewise.kernels.attention.contract import Case, Implementation
from edgewise.kernels.attention.derivatives import refuse_forward_mode, refuse_second
from edgewise.kernels.attention.triton_blocks import padded
from edgewise.kernels.attention.triton_passes import Passes, passes
from edgewise.kernels.negated import written


class How(NamedTuple):
    """How a call lies in memory: whether q, k and v have tokens before heads, and whether the
    heads of all samples are one axis of theirs."""

    tokens_first: tuple[bool, ...]
    folded: bool


Kept = dict[How, Callable[[], Passes | None]]  # while the cache of passes has them


def takes(implementation: Implementation, q: Tensor) -> bool:
    return implementation is triton_blocks and 2 < q.ndim < 5


def attend(case: Case, kept: Kept, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(..., heads, n, dv) of a case that `triton_blocks` takes."""
    q, k, v = written(q), written(k), written(v)
    how = _how(q, k, v)
    ready = kept[how]() if how in kept else None
    if ready is None:
        ready = passes(case, _shape(q, k, how), how.tokens_first, str(q.device))
        kept[how] = ref(ready)
    refuse_forward_mode(triton_blocks.name, q, k, v)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        found: Tensor = _Direct.apply(ready, how, q, k, v)
        return found
    return _forward(ready, how, q, k, v)[0]


def _how(q: Tensor, k: Tensor, v: Tensor) -> How:
    strides = (q.stride(), k.stride(), v.stride())
    first = tuple([x[-3] < x[-2] for x in strides])
    folded = False
    if q.ndim == 4 and len(q) > 1 and not any(first):
        heads = (q.shape[1], k.shape[1], v.shape[1])
        folded = all([x[0] == x[1] * many for x, many in zip(strides, heads, strict=True)])
    return How(first, folded)


def _shape(q: Tensor, k: Tensor, how: How) -> tuple[int, int, int]:
    batch = len(q) if q.ndim == 4 else 1
    heads, keys = q.shape[-3], k.shape[-3]
    return (1, batch * heads, batch * keys) if how.folded else (batch, heads, keys)


def _as_read(x: Tensor, ready: Passes, how: How) -> Tensor:
    """(batch, heads, tokens, features) as the passes take it."""
    x = x if ready.exact else padded(x)
    if how.folded:
        return x.reshape(1, -1, *x.shape[2:])
    return x if x.ndim == 4 else x[None]


def _as_given(x: Tensor, shape: torch.Size, features: int) -> Tensor:
    if x.ndim != len(shape) or x.shape[0] != shape[0]:
        x = x.view(*shape[:-1], x.shape[-1])
    return x if x.shape[-1] == features else x[..., :features]


def _forward(ready: Passes, how: How, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    try:
        read = [_as_read(x, ready, how) for x in (q, k, v)]
        out, lse = ready.forward(read[0], read[1], read[2])
    except (RuntimeError, MemoryError) as error:
        memory.explain(error, ready.case, triton_blocks.name)
        raise
    return _as_given(out, q.shape, ready.case.dv), lse


class _Direct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ready: Passes, how: How, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = _forward(ready, how, q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.asked = ready, how
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            refuse_second(triton_blocks.name)
        ready, how = ctx.asked
        q, k, v, out, lse = ctx.saved_tensors
        read = (q, k, v, written(dout), out)
        q4, k4, v4, dout, out = (_as_read(x, ready, how) for x in read)
        try:
            dq, dk, dv = ready.backward((q4, k4, v4), (dout, out, lse))
        except (RuntimeError, MemoryError) as error:
            memory.explain(error, ready.case, triton_blocks.name)
            raise
        d = q.shape[-1]
        grads = _as_given(dq, q.shape, d), _as_given(dk, k.shape, d)
        return None, None, *grads, _as_given(dv, v.shape, v.shape[-1])
