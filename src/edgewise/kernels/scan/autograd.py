"""A loop over levels as one differentiable function of its columns and matrices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.kernel_choices import Chosen, no_numba
from edgewise.kernels.scan.code import Lifted, LoopProducts, Place, ScanCode, scan_code
from edgewise.kernels.scan.program import Scan
from edgewise.kernels.scan.unrolled import unrolled
from edgewise.kernels.tape import torch_loops
from edgewise.kernels.tape.recording import current_recorder
from edgewise.kernels.tape.writer import Code

MOST = 1 << 20  # multiplications of a level, above which a call of BLAS is worth its overhead
PLAIN = (Tensor, torch.nn.Parameter)
SPARE = 1 << 26  # bytes that wait for their next use

Kind = tuple[int, torch.dtype, torch.device]
_SPARE: dict[Kind, list[Tensor]] = defaultdict(list)
_waiting = [0]


class Workspace:
    """`numbers` of any value, for as long as this object lives; then others take their memory.

    The first use of a page costs more than what is computed in it.
    """

    def __init__(self, count: int, dtype: torch.dtype, device: torch.device) -> None:
        self.kind: Kind = (count, dtype, device)
        self.own = current_recorder() is None
        waiting = _SPARE[self.kind] if self.own else None
        if waiting:
            self.numbers = waiting.pop()
            _waiting[0] -= self.numbers.nbytes
        else:
            make = torch.empty if self.own else torch.zeros
            with torch.inference_mode(False):  # training may use it next
                self.numbers = make(count, dtype=dtype, device=device)

    def __del__(self) -> None:
        if self.own and _waiting[0] + self.numbers.nbytes <= SPARE:
            _waiting[0] += self.numbers.nbytes
            _SPARE[self.kind].append(self.numbers)


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


def _run(code: Code, work: Tensor, native: bool) -> None:
    recorder = current_recorder()
    if recorder is not None:
        recorder.call(code, work)
    elif native:
        from edgewise.kernels.tape.numba_loops import run

        run(code.lines, code.steps, 0, len(code.steps), code.index, work.numpy())
    else:
        torch_loops.run(code, work)


def _batch_first(work: Tensor, place: Place, batch: int) -> Tensor:
    """Rows as (batch, rows, width)."""
    size = (batch, place.rows // batch, place.width)
    return work.as_strided(size, (place.step, batch * place.step, 1), place.start)


class _Scanned(torch.autograd.Function):
    """Holds the workspace: it has all values that gradients read."""

    @staticmethod
    def forward(ctx: Any, scan: Scan, *tensors: Tensor) -> tuple[Tensor, ...]:
        code = scan_code(scan)
        kind = reduce(torch.promote_types, {tensor.dtype for tensor in tensors})
        learns = any(ctx.needs_input_grad)
        space = Workspace(code.size * (2 if learns else 1), kind, tensors[0].device)
        work = space.numbers
        native = refuses_numba(scan, kind, work.device.type) is None
        with without_autocast(work):
            _fill(scan, code, work, tensors, learns)
            _run(code.forward, work, native)
        ctx.scan, ctx.native, ctx.space = scan, native, space
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        found = (_batch_first(work, place, scan.batch) for place in code.results)
        return tuple(x.clone(memory_format=torch.contiguous_format) for x in found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        scan: Scan = ctx.scan
        tensors = ctx.saved_tensors
        needs = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # gradients of these gradients will be asked for
            return None, *_differentiable(scan, tensors, needs, grads)
        with without_autocast(ctx.space.numbers):
            return None, *_gradients(scan, ctx.native, ctx.space.numbers, tensors, needs, grads)


def _fill(
    scan: Scan, code: ScanCode, work: Tensor, tensors: Sequence[Tensor], learns: bool
) -> None:
    """Put everything where it is before the loop."""
    same = all(t.dtype == work.dtype for t in tensors)
    read = tensors if same else [t.to(work.dtype) for t in tensors]
    columns, sources, matrices = scan.parts(read)
    for place in code.zeros:
        place.view(work).zero_()
    for start, number in code.constants:
        work[start] = number
    started = _lift(code, work, columns, sources, matrices)
    for at, (place, column) in enumerate(zip(code.inputs, columns, strict=True)):
        if at not in started:
            _batch_first(work, place, scan.batch).copy_(column)
    for lifted in code.lifted:
        if not started.issuperset(lifted.inputs):
            matrix = _joined(matrices, lifted.matrices)
            lifted.out.view(work).addmm_(_rows(sources[lifted.source]), matrix.t())
    for product in code.products:
        wide, inner = product.out.width, product.source.width
        matrix = _joined(matrices, product.matrices)
        work.as_strided((inner, wide), (wide, 1), product.turned).copy_(matrix.t())
        if learns:
            work.as_strided((wide, inner), (inner, 1), product.plain).copy_(matrix)


def _lift(
    code: ScanCode,
    work: Tensor,
    columns: Sequence[Tensor],
    sources: Sequence[Tensor],
    matrices: Sequence[Tensor],
) -> set[int]:
    """Products before the loop that are added to the same row everywhere; the inputs that are
    complete with them."""
    found = set[int]()
    counts = Counter(at for lifted in code.lifted for at in lifted.inputs)
    for lifted in code.lifted:
        same = all(columns[at].shape[:2] == (1, 1) and counts[at] == 1 for at in lifted.inputs)
        if not same or lifted.out.width != lifted.out.step:
            continue
        start = [columns[at].reshape(-1) for at in lifted.inputs]
        parts = (
            start[0] if len(start) == 1 else torch.cat(start),
            _rows(sources[lifted.source]),
            _joined(matrices, lifted.matrices).t(),
        )
        if current_recorder() is None:
            torch.addmm(*parts, out=lifted.out.view(work))
        else:
            lifted.out.view(work).copy_(torch.addmm(*parts))
        found.update(lifted.inputs)
    return found


def _rows(source: Tensor) -> Tensor:
    """(batch, rows, width) as rows of a workspace."""
    return source.transpose(0, 1).reshape(-1, source.shape[2])


def _joined(matrices: Sequence[Tensor], numbers: Sequence[tuple[int, int]]) -> Tensor:
    """Matrices one below the other."""
    listed = [matrices[number] for number, _ in numbers]
    return listed[0] if len(listed) == 1 else torch.cat(listed)


def _gradients(
    scan: Scan,
    native: bool,
    work: Tensor,
    tensors: Sequence[Tensor],
    needs: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    code = scan_code(scan)
    work[code.size :].zero_()
    for place, grad in zip(code.results, grads, strict=True):
        if grad is not None:
            _batch_first(work, _slope(place, code), scan.batch).add_(grad)
    _run(code.backward, work, native)
    columns, sources, matrices = scan.parts(tensors)
    of_columns, of_sources, of_matrices = scan.parts(needs)
    found: list[Tensor | None] = [None] * len(columns)
    for lifted in code.lifted:  # those of one row are summed together
        if all(columns[at].shape[:2] == (1, 1) and of_columns[at] for at in lifted.inputs):
            total = _slope(lifted.out, code).view(work).sum(0)
            for at, part in zip(
                lifted.inputs,
                total.split([columns[at].shape[2] for at in lifted.inputs]),
                strict=True,
            ):
                found[at] = part.reshape(1, 1, -1).to(columns[at].dtype)
    for at, (place, column) in enumerate(zip(code.inputs, columns, strict=True)):
        if of_columns[at] and found[at] is None:
            found[at] = _summed(_batch_first(work, _slope(place, code), scan.batch), column)
    found += _source_gradients(code, work, sources, matrices, of_sources)
    return found + _matrix_gradients(code, work, sources, matrices, of_matrices)


def _source_gradients(
    code: ScanCode,
    work: Tensor,
    sources: Sequence[Tensor],
    matrices: Sequence[Tensor],
    needs: Sequence[bool],
) -> list[Tensor | None]:
    found: list[Tensor | None] = [None] * len(sources)
    for lifted in code.lifted:
        if needs[lifted.source]:
            like = sources[lifted.source]
            matrix = _joined(matrices, lifted.matrices).to(work.dtype)
            more = _slope(lifted.out, code).view(work) @ matrix
            more = more.view(like.shape[1], like.shape[0], -1).transpose(0, 1).to(like.dtype)
            before = found[lifted.source]
            found[lifted.source] = more if before is None else before + more
    return found


def _slope(place: Place, code: ScanCode) -> Place:
    """The gradient of what is at a place."""
    return Place(place.start + code.size, place.rows, place.width, place.step)


def _matrix_gradients(
    code: ScanCode,
    work: Tensor,
    sources: Sequence[Tensor],
    matrices: Sequence[Tensor],
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """One matrix product for all levels."""
    found: list[Tensor | None] = [None] * len(matrices)
    every: list[LoopProducts | Lifted] = [*code.products, *code.lifted]
    for product in every:
        if not any(needs[number] for number, _ in product.matrices):
            continue
        if isinstance(product, Lifted):
            rows = _rows(sources[product.source]).to(work.dtype)
        else:
            rows = product.source.view(work)
        more = _slope(product.out, code).view(work).t() @ rows
        sizes = [len(matrices[number]) for number, _ in product.matrices]
        for (number, _), part in zip(product.matrices, more.split(sizes), strict=True):
            before = found[number]
            found[number] = part if before is None else before + part
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
