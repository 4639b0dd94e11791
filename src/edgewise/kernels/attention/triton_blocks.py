"""Block-sparse attention on a GPU: flash attention over lists of blocks."""

import os
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms
from edgewise.kernels.attention.tiles import blocks_of
from edgewise.kernels.attention.triton_tiles import Lists, Plan, plan

name = "triton_blocks"
BLOCK = 64
# Warps, pipeline stages and registers of each pass, measured on an H200 with 64 features in bf16:
# so many registers that four (four, three) programs share a processor.
LAUNCH = {"forward": (4, 2, 128), "rows": (4, 2, 128), "columns": (4, 3, 168)}
PAIR = 2.0  # the time of a pair in pairs of a dense product
WIDEST = 128


def refuses(case: Case) -> str | None:
    if case.device != "cuda" and not interpreted():
        return f"it runs on a CUDA GPU, not on {case.device}"
    if find_spec("triton") is None:
        return 'triton is not installed: pip install "edgewise[gpu]"'
    if not case.work:
        return "there are no pairs"
    if case.dtype == torch.float64:
        return "it does not compute in float64"
    if reason := case.scattered(64):
        return reason
    if max(case.d, case.dv) > WIDEST:
        return f"{max(case.d, case.dv)} features are more than {WIDEST}"
    return case.lacks()


def interpreted() -> bool:
    """Triton's interpreter runs the kernels on a CPU: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def cost(case: Case) -> float:
    slow = 1e3 if case.device == "cpu" else PAIR
    found = blocks_of(case.graph, case.n, case.m, BLOCK)
    return slow * case.b * case.g * found.count * BLOCK * BLOCK


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    tiles = _plan(case)
    q, k, v = padded(q.flatten(0, 1)), padded(k), padded(v)
    heads, rows, dv = len(q), tiles.rows, v.shape[-1]
    out = q.new_empty(heads, case.n, dv)
    lse = q.new_empty(heads, case.n, dtype=torch.float32)
    parts = (out, lse)
    if rows.slots:
        part = q.new_empty(heads * rows.slots, tiles.block, dv, dtype=torch.float32)
        parts = (part, part.new_empty(part.shape[:2]))
    kernels.forward[len(rows.items), heads](
        *(described(x) for x in (q, k, v)), out, lse, *parts, *_lists(tiles, rows),
        case.scale, case.n, case.g, rows.slots, **_meta("forward", tiles, q, dv)
    )  # fmt: skip
    if rows.slots:
        ends = (rows.split, rows.split_ptr, case.n, rows.slots)
        kernels.merge[len(rows.split), heads](
            out, lse, *parts, *ends, BLOCK=tiles.block, DV=dv, num_warps=4
        )
    shape = (case.b, case.g, case.n)
    return out[..., : case.dv].reshape(*shape, case.dv), lse.view(shape)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    q, out, g = (padded(x.flatten(0, 1)) for x in (saved.q, saved.out, dout))
    k, v = padded(saved.k), padded(saved.v)
    lse = saved.lse.flatten(0, 1).contiguous()
    tiles = _plan(case)
    stats = lse.new_empty(len(q), -(-case.n // tiles.block) * tiles.block, dtype=torch.int64)
    inputs = tuple(described(x) for x in (q, k, v, g))
    dq = _rows(case, tiles, inputs, (out, lse, stats))
    dk, dv = _columns(case, tiles, inputs, stats)
    dq = dq[..., : case.d].reshape(saved.q.shape)
    return Grads(dq, dk[..., : case.d], dv[..., : case.dv])


def _rows(
    case: Case, tiles: Plan, inputs: tuple[Any, ...], state: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """dq; `state` is the output, the log-sum-exp and the place for what the other pass reads."""
    from edgewise.kernels.attention import triton_block_kernels as kernels

    q, rows, d = inputs[0].base, tiles.rows, inputs[0].shape[-1]
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    part = dq
    if rows.slots:
        part = q.new_empty(len(q) * rows.slots, tiles.block, d, dtype=torch.float32)
    kernels.backward_rows[len(rows.items), len(q)](
        *inputs, *state, dq, part, *_lists(tiles, rows),
        case.scale, case.n, case.g, rows.slots, *state[0].stride()[:2],
        **_meta("rows", tiles, q, inputs[2].shape[-1]),
    )  # fmt: skip
    _added(dq, part, tiles, rows)
    return dq


def _columns(
    case: Case, tiles: Plan, inputs: tuple[Any, ...], stats: Tensor
) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    q, k, v, _ = (x.base for x in inputs)
    columns = tiles.columns
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (k, v)]
    parts = grads
    if columns.slots:
        size = (len(k) * columns.slots, tiles.block)
        parts = [x.new_empty(*size, x.shape[-1], dtype=torch.float32) for x in (k, v)]
    kernels.backward_columns[len(columns.items), len(k)](
        *inputs, stats, *grads, *parts, *_lists(tiles, columns),
        case.scale, case.n, case.m, case.g, columns.slots,
        **_meta("columns", tiles, q, v.shape[-1]),
    )  # fmt: skip
    for grad, part in zip(grads, parts, strict=True):
        _added(grad, part, tiles, columns)
    return grads[0], grads[1]


def _added(total: Tensor, part: Tensor, tiles: Plan, lists: Lists) -> None:
    """The parts of rows (or columns) that were split, summed in one order."""
    from edgewise.kernels.attention import triton_block_kernels as kernels

    if lists.slots:
        ends = (lists.split, lists.split_ptr, total.shape[1], lists.slots)
        kernels.add_up[len(lists.split), len(total)](
            total, part, *ends, BLOCK=tiles.block, D=total.shape[-1]
        )


def row_products(g: Tensor, out: Tensor) -> Tensor:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    delta = torch.empty(g.shape[:2], dtype=torch.float32, device=g.device)
    rows, strides = delta.numel(), (*g.stride()[:2], *out.stride()[:2])
    kernels.row_dots[(-(-rows // 64),)](
        g, out, delta, rows, *strides, g.shape[1], ROWS=64, D=g.shape[-1], num_warps=4
    )
    return delta


def _plan(case: Case) -> Plan:
    return plan(case.graph, case.n, case.m, BLOCK, case.device)


def _lists(tiles: Plan, lists: Lists) -> tuple[Tensor, ...]:
    return lists.items, lists.work, tiles.layer_ptr, tiles.ends


def _meta(step: str, tiles: Plan, q: Tensor, dv: int) -> dict[str, Any]:
    warps, stages, registers = LAUNCH[step]
    d, single = q.shape[-1], q.dtype == torch.float32
    launch = {"num_warps": warps, "num_stages": 1 if single else stages, "maxnreg": registers}
    if single or max(d, dv) > 64:
        launch = {"num_warps": warps, "num_stages": 1 if single else 2}
    precision = "ieee" if single else "tf32"
    shape = {"BLOCK": tiles.block, "D": d, "DV": dv}
    return {**shape, "ONE": tiles.one, "PRECISION": precision, **launch}


def described(x: Tensor) -> Any:
    """(heads, tokens, features) as the copy engine reads it, a block of one head at a time."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    whole = 16 // x.element_size()
    fits = x.stride(2) == 1 and all(s > 0 and s % whole == 0 for s in x.stride()[:2])
    if not fits or x.data_ptr() % 16:
        x = torch.empty_like(x, memory_format=torch.contiguous_format).copy_(x)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, BLOCK, x.shape[2]])


def padded(x: Tensor) -> Tensor:
    """With features next to each other, their number a power of two of at least 16."""
    width = max(16, 1 << (x.shape[-1] - 1).bit_length())
    if width != x.shape[-1]:
        return pad(x, (0, width - x.shape[-1]))
    return x if x.stride(-1) == 1 else x.contiguous()
