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
# Warps and pipeline stages of each pass, measured on an H200 with 64 features in bf16.
LAUNCH = {"forward": (4, 2), "rows": (4, 3), "columns": (4, 2)}
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
    q, k, v = q.flatten(0, 1), padded(k), padded(v)
    q = padded(q)
    heads, rows, dv = len(q), tiles.rows, v.shape[-1]
    out = q.new_empty(heads, case.n, dv)
    lse = q.new_empty(heads, case.n, dtype=torch.float32)
    slots = rows.items.slots
    part = q.new_empty(heads * slots, tiles.block, dv, dtype=torch.float32)
    part_lse = q.new_empty(heads * slots, tiles.block, dtype=torch.float32)
    common = _common(case, tiles, rows)
    strides = [s for x in (q, k, v) for s in x.stride()[:2]]
    shape = {"BLOCK": tiles.block, "DV": dv}
    kernels.forward[len(rows.items.row), heads](
        q, k, v, out, lse, part, part_lse, *common, *strides, **shape, **_meta("forward", tiles, q)
    )
    if slots:
        ends = (rows.items.split, rows.items.split_ptr)
        kernels.merge[len(rows.items.split), heads](
            out, lse, part, part_lse, *ends, case.n, slots, **shape, num_warps=4
        )
    shape4 = (case.b, case.g, case.n)
    return out[..., : case.dv].reshape(*shape4, case.dv), lse.view(shape4)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    q, out, g = (padded(x.flatten(0, 1)) for x in (saved.q, saved.out, dout))
    k, v = padded(saved.k), padded(saved.v)
    lse = saved.lse.flatten(0, 1).contiguous()
    delta = row_products(g, out)
    inputs = (q, k, v, g, lse, delta)
    tiles = _plan(case)
    dq = _rows(case, tiles, inputs)
    dk, dv = _columns(case, tiles, inputs)
    dq = dq[..., : case.d].reshape(saved.q.shape)
    return Grads(dq, dk[..., : case.d], dv[..., : case.dv])


def row_products(g: Tensor, out: Tensor) -> Tensor:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    delta = torch.empty(g.shape[:2], dtype=torch.float32, device=g.device)
    rows, strides = delta.numel(), (*g.stride()[:2], *out.stride()[:2])
    kernels.row_dots[(-(-rows // 64),)](
        g, out, delta, rows, *strides, g.shape[1], ROWS=64, D=g.shape[-1], num_warps=4
    )
    return delta


def _rows(case: Case, tiles: Plan, inputs: tuple[Tensor, ...]) -> Tensor:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    q, k, v, g = inputs[:4]
    items, d = tiles.rows.items, q.shape[-1]
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    part = q.new_empty(len(q) * items.slots, tiles.block, d, dtype=torch.float32)
    strides = [s for x in (q, k, v, g) for s in x.stride()[:2]]
    shape = {"BLOCK": tiles.block, "DV": v.shape[-1]}
    kernels.backward_rows[len(items.row), len(q)](
        *inputs, dq, part, *_common(case, tiles, tiles.rows), *strides,
        **shape, **_meta("rows", tiles, q)
    )  # fmt: skip
    if items.slots:
        kernels.add_up[len(items.split), len(q)](
            dq, part, items.split, items.split_ptr, case.n, items.slots, BLOCK=tiles.block, D=d
        )
    return dq


def _columns(case: Case, tiles: Plan, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    q, k, v, g = inputs[:4]
    items = tiles.columns.items
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (k, v)]
    parts = [
        x.new_empty(len(k) * items.slots, tiles.block, x.shape[-1], dtype=torch.float32)
        for x in (k, v)
    ]
    strides = [s for x in (q, k, v, g) for s in x.stride()[:2]]
    shape = {"BLOCK": tiles.block, "DV": v.shape[-1]}
    kernels.backward_columns[len(items.row), len(k)](
        *inputs, *grads, *parts, *_common(case, tiles, tiles.columns), *strides,
        **shape, **_meta("columns", tiles, q)
    )  # fmt: skip
    if items.slots:
        ends = (items.split, items.split_ptr, case.m, items.slots)
        for grad, part in zip(grads, parts, strict=True):
            kernels.add_up[len(items.split), len(k)](
                grad, part, *ends, BLOCK=tiles.block, D=grad.shape[-1]
            )
    return grads[0], grads[1]


def _plan(case: Case) -> Plan:
    return plan(case.graph, case.n, case.m, BLOCK, case.device)


def _common(case: Case, tiles: Plan, lists: Lists) -> tuple[Any, ...]:
    items = lists.items
    work = (items.row, *items.ends, items.slot, lists.index, lists.kind)
    masks = (tiles.layer_ptr, tiles.low, tiles.high)
    return (*work, *masks, case.scale, case.n, case.m, case.g, items.slots)


def _meta(step: str, tiles: Plan, q: Tensor) -> dict[str, Any]:
    warps, stages = LAUNCH[step]
    if q.dtype == torch.float32:
        stages = 1
    precision = "ieee" if q.dtype == torch.float32 else "tf32"
    meta = {"ONE": tiles.one, "PRECISION": precision, "D": q.shape[-1]}
    return {**meta, "num_warps": warps, "num_stages": stages}


def padded(x: Tensor) -> Tensor:
    """With features next to each other, their number a power of two of at least 16."""
    width = max(16, 1 << (x.shape[-1] - 1).bit_length())
    if width != x.shape[-1]:
        return pad(x, (0, width - x.shape[-1]))
    return x if x.stride(-1) == 1 else x.contiguous()
