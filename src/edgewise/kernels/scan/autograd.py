"""A loop over levels as one differentiable function of its columns and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.kernel_choices import Chosen, no_numba
from edgewise.kernels.scan import torch_steps
from edgewise.kernels.scan.program import LINEAR, Scan, Slot
from edgewise.kernels.scan.unrolled import unrolled

MOST = 1 << 20  # multiplications of a level, above which a call of BLAS is worth its overhead
PLAIN = (Tensor, torch.nn.Parameter)


def refuses_numba(scan: Scan, dtype: torch.dtype, device: str) -> str | None:
    """Why compiled loops do not run a scan."""
    if reason := no_numba(device):
        return reason
    if dtype not in (torch.float32, torch.float64):
        return f"it does not compute in {str(dtype).removeprefix('torch.')}"
    if scan.multiplications > MOST:
        return f"levels of {scan.multiplications:,} multiplications are worth calls of BLAS"
    return None


def choice(scan: Scan, dtype: torch.dtype, device: str) -> Chosen:
    """The kernel of a scan, and why not the other."""
    reason = refuses_numba(scan, dtype, device)
    if reason is None:
        return Chosen("scan", "numba", (("torch", "levels are small: calls would take the time"),))
    return Chosen("scan", "torch", (("numba", reason),))


def run_scan(scan: Scan, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The results, each (batch, rows, width), of columns (batch or 1, rows or 1, width) and
    matrices (out, in)."""
    if _transformed(tensors):
        return unrolled(scan, tensors)
    found: tuple[Tensor, ...] = _Scanned.apply(scan, *tensors)
    return found


def _transformed(tensors: Sequence[Tensor]) -> bool:
    """Whether something looks at single operations: a trace, a transform, forward gradients."""
    if torch._C._functorch.peek_interpreter_stack() is not None or get_proxy_mode() is not None:
        return True
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    return any(type(t) not in PLAIN or t.is_meta for t in tensors)


def _batch_first(work: Tensor, slot: Slot, batch: int) -> Tensor:
    """The rows of a slot as (batch, rows, width)."""
    return slot.view(work).view(-1, batch, slot.width).transpose(0, 1)


class _Scanned(torch.autograd.Function):
    """Saves the workspace: it has all values that gradients read."""

    @staticmethod
    def forward(ctx: Any, scan: Scan, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(scan.inputs)
        columns, matrices = tensors[:count], tensors[count:]
        kind = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        work = columns[0].new_zeros(scan.size, dtype=kind)
        for at, column in zip(scan.inputs, columns, strict=True):
            _batch_first(work, scan.slots[at], scan.batch).copy_(column)
        matrices = tuple(matrix.to(kind) for matrix in matrices)
        native = refuses_numba(scan, kind, work.device.type) is None
        with without_autocast(work):
            _module(native).forward(scan, work, matrices)
        ctx.scan, ctx.native = scan, native
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(work, *tensors)
        found = (_batch_first(work, scan.slots[at], scan.batch) for at in scan.results)
        return tuple(x.clone(memory_format=torch.contiguous_format) for x in found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        scan: Scan = ctx.scan
        work, *tensors = ctx.saved_tensors
        needs = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled() and any(g is not None and g.requires_grad for g in grads):
            return None, *_differentiable(scan, tensors, needs, grads)
        with without_autocast(work):
            return None, *_gradients(scan, ctx.native, work, tensors, needs, grads)


def _module(native: bool) -> Any:
    if not native:
        return torch_steps
    from edgewise.kernels.scan import numba_steps

    return numba_steps


def _gradients(
    scan: Scan,
    native: bool,
    work: Tensor,
    tensors: Sequence[Tensor],
    needs: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    count = len(scan.inputs)
    slopes = torch.zeros_like(work)
    for at, grad in zip(scan.results, grads, strict=True):
        if grad is not None:
            _batch_first(slopes, scan.slots[at], scan.batch).add_(grad)
    matrices = [matrix.to(work.dtype) for matrix in tensors[count:]]
    _module(native).backward(scan, work, slopes, matrices)
    found: list[Tensor | None] = []
    for at, column, needed in zip(scan.inputs, tensors, needs, strict=False):
        found.append(
            _summed(_batch_first(slopes, scan.slots[at], scan.batch), column) if needed else None
        )
    return found + _matrix_gradients(scan, work, slopes, tensors[count:], needs[count:])


def _matrix_gradients(
    scan: Scan, work: Tensor, slopes: Tensor, matrices: Sequence[Tensor], needs: Sequence[bool]
) -> list[Tensor | None]:
    """One product of matrices for all levels."""
    found: list[Tensor | None] = [None] * len(matrices)
    for x in scan.instructions:
        if x.op != LINEAR or not needs[x.weight]:
            continue
        more = scan.slots[x.out].view(slopes).t() @ scan.slots[x.a].view(work)
        before = found[x.weight]
        found[x.weight] = more if before is None else before + more
    return [
        None if not needed else (torch.zeros_like(m) if g is None else g.to(m.dtype))
        for g, m, needed in zip(found, matrices, needs, strict=True)
    ]


def _summed(grad: Tensor, column: Tensor) -> Tensor:
    """The gradient of a column that stands for several rows or samples."""
    axes = [d for d in (0, 1) if column.shape[d] == 1 and grad.shape[d] != 1]
    grad = grad.sum(axes, keepdim=True) if axes else grad
    return grad.to(column.dtype, copy=True)


def _differentiable(
    scan: Scan, tensors: Sequence[Tensor], needs: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The same gradients by operations that have gradients."""
    wanted = [t for t, needed in zip(tensors, needs, strict=True) if needed]
    outputs = unrolled(scan, tensors)
    pairs = [(y, g) for y, g in zip(outputs, grads, strict=True) if g is not None]
    made = iter(
        torch.autograd.grad(
            [y for y, _ in pairs],
            wanted,
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
    )
    return [next(made) if needed else None for needed in needs]
