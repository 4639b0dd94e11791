"""Block-sparse attention on a GPU: flash attention over lists of blocks."""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms
from edgewise.kernels.attention.tiles import blocks_of
from edgewise.kernels.attention.triton_score import Packed, functions, unit_of
from edgewise.kernels.attention.triton_tiles import Lists, Plan, plan
from edgewise.kernels.availability import no_triton
from edgewise.scores.nodes import S

name = "triton_blocks"
BLOCK = 64
# Warps, pipeline stages and registers of each pass, measured on an H200 with 64 features in bf16:
# so many registers that four (four, three) programs share a processor.
LAUNCH = {"forward": (4, 2, 128), "rows": (4, 2, 128), "columns": (4, 3, 168)}
ELSEWHERE = {"num_warps": 8, "num_stages": 1}  # where no engine copies tiles: fewest spills
PAIR = 1.4  # the time of a pair in pairs of a dense product
WIDEST = 128
MOST_HEADS = 65535  # of one launch, over the batch


def refuses(case: Case) -> str | None:
    if reason := no_triton(case.device):
        return reason
    if not case.work:
        return "there are no pairs"
    if case.dtype == torch.float64:
        return "it does not compute in float64"
    if reason := case.scattered(64):
        return reason
    if max(case.d, case.dv) > WIDEST:
        return f"{max(case.d, case.dv)} features are more than {WIDEST}"
    if case.b * case.g > MOST_HEADS:
        return f"{case.b * case.g:,} heads, over the batch, are more than {MOST_HEADS:,}"
    return case.lacks("bias", "score", "dropout")


@lru_cache
def has_engine() -> bool:
    """From Hopper on a chip copies tiles by itself; desktop chips have other tensor cores."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] in (9, 10)


def cost(case: Case) -> float:
    slow = 1e3 if case.device == "cpu" else PAIR
    found = blocks_of(case.graph, case.n, case.m, BLOCK)
    return slow * case.b * case.g * found.count * BLOCK * BLOCK


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    tiles = _plan(case)
    q, k, v = padded(q), padded(k), padded(v)
    heads, rows, dv = case.b * case.g, tiles.rows, v.shape[-1]
    out = q.new_empty(case.b, case.g, case.n, dv)
    lse = q.new_empty(case.b, case.g, case.n, dtype=torch.float32)
    parts = (out, lse)
    if rows.slots:
        part = q.new_empty(heads * rows.slots, tiles.block, dv, dtype=torch.float32)
        parts = (part, part.new_empty(part.shape[:2]))
    kernels.forward[len(rows.items), heads](
        described(q), described(k), described(v), out, lse, *parts, *_lists(tiles, rows),
        case.scale, case.n, case.g, rows.slots, *_extra(case, terms, q),
        **_meta("forward", case, tiles, q, dv)
    )  # fmt: skip
    if rows.slots:
        ends = (rows.split, rows.split_ptr, case.n, rows.slots)
        kernels.merge[len(rows.split), heads](
            out, lse, *parts, *ends, BLOCK=tiles.block, DV=dv, num_warps=4
        )
    return _cut(out, case.dv), lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    q, k, v, g = (padded(x) for x in (saved.q, saved.k, saved.v, dout))
    tiles = _plan(case)
    inputs = (described(q), described(k), described(v), described(g))
    length = -(-case.n // tiles.block) * tiles.block
    stats = q.new_empty(case.b * case.g, length, dtype=torch.int64)
    extra = _extra(case, saved.terms, q)
    total = _Whole(case, saved.terms, g, v)
    dq = _rows(case, tiles, inputs, (padded(saved.out), saved.lse, stats), (*total.room, *extra))
    dk, dv = _columns(case, tiles, inputs, stats, extra)
    return Grads(_cut(dq, case.d), _cut(dk, case.d), _cut(dv, case.dv), total.terms())


def _rows(
    case: Case,
    tiles: Plan,
    inputs: tuple[Any, ...],
    state: tuple[Tensor, Tensor, Tensor],
    extra: tuple[Any, ...],
) -> Tensor:
    """dq; `state` is the output, the log-sum-exp and the place for what the other pass reads."""
    from edgewise.kernels.attention import triton_block_kernels as kernels

    heads, n, d = inputs[0].shape
    out, lse, stats = state
    rows, dq = tiles.rows, inputs[0].base.new_empty(case.b, case.g, n, d)
    part = dq
    if rows.slots:
        part = lse.new_empty(heads * rows.slots, tiles.block, d)
    kernels.backward_rows[len(rows.items), heads](
        *inputs, described(out), lse.contiguous(), stats, dq, part, *_lists(tiles, rows),
        case.scale, n, case.g, rows.slots, *extra,
        **_meta("rows", case, tiles, dq, out.shape[-1]),
    )  # fmt: skip
    _added(dq, part, tiles, rows)
    return dq


def _columns(
    case: Case, tiles: Plan, inputs: tuple[Any, ...], stats: Tensor, extra: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.attention import triton_block_kernels as kernels

    _, k, v, _ = inputs
    columns = tiles.columns
    grads = [x.base.new_empty(x.shape) for x in (k, v)]
    parts = grads
    if columns.slots:
        size = (case.b * columns.slots, tiles.block)
        parts = [x.new_empty(*size, x.shape[-1], dtype=torch.float32) for x in grads]
    kernels.backward_columns[len(columns.items), case.b](
        *inputs, stats, *grads, *parts, *_lists(tiles, columns),
        case.scale, case.n, case.g, columns.slots, *extra,
        **_meta("columns", case, tiles, grads[0], v.shape[-1]),
    )  # fmt: skip
    for grad, part in zip(grads, parts, strict=True):
        _added(grad, part, tiles, columns)
    return grads[0], grads[1]


def _added(total: Tensor, part: Tensor, tiles: Plan, lists: Lists) -> None:
    """The parts of rows (or columns) that were split, summed in one order."""
    from edgewise.kernels.attention import triton_block_kernels as kernels

    if lists.slots:
        n, d = total.shape[-2:]
        ends = (lists.split, lists.split_ptr, n, lists.slots)
        kernels.add_up[len(lists.split), total.numel() // (n * d)](
            total, part, *ends, BLOCK=tiles.block, D=d
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


class _Whole:
    """Gradients of tables and biases as whole numbers, `unit` of which are 1."""

    def __init__(self, case: Case, terms: Terms, g: Tensor, v: Tensor) -> None:
        self.given = terms
        if terms.bias is None and not terms.tables:
            self.room: tuple[Tensor, ...] = (g, g, g)
            return
        self.packed = Packed.of(terms.tables, g.device)
        self.unit = unit_of(g, v, case.b * case.g * case.n)
        tables = torch.zeros(self.packed.tables.shape, dtype=torch.int64, device=g.device)
        bias = tables if terms.bias is None else torch.zeros_like(terms.bias, dtype=torch.int64)
        self.room = (tables, bias.contiguous(), self.unit)

    def terms(self) -> Terms:
        tables, bias, _ = self.room
        given = self.given
        parts: tuple[Tensor, ...] = ()
        if given.tables:
            parts = self.packed.split(tables / self.unit, given.tables)
        dbias = None if given.bias is None else (bias / self.unit).to(given.bias.dtype)
        return Terms.of([dbias, None, None, None, None, *parts])


def _extra(case: Case, terms: Terms, q: Tensor) -> tuple[Any, ...]:
    """Tables, the bias with its strides, and dropout, as all passes take them."""
    tables, sizes, bias, strides = q, q, q, (0, 0, 0)
    if terms.tables:
        packed = Packed.of(terms.tables, q.device)
        tables, sizes = packed.tables, packed.sizes
    if terms.bias is not None:
        bias = terms.bias.contiguous()
        _, _, n, m = bias.shape
        strides = (n * m, m if n > 1 else 0, 1 if m > 1 else 0)
    drop = terms.drop
    chance = (0, 0, 1.0) if drop is None else (drop.seed, drop.least, 1 / (1 - drop.chance))
    return (tables, sizes, bias, *strides, case.m, *chance)


def _meta(step: str, case: Case, tiles: Plan, q: Tensor, dv: int) -> dict[str, Any]:
    warps, stages, registers = LAUNCH[step]
    d, single = q.shape[-1], q.dtype == torch.float32
    launch = {"num_warps": warps, "num_stages": 1 if single else stages, "maxnreg": registers}
    if single or max(d, dv) > 64 or case.written_out:
        launch = {"num_warps": warps, "num_stages": 1 if single else 2}
    if not has_engine():
        launch = ELSEWHERE
    precision = "ieee" if single else "tf32"
    shape = {"BLOCK": tiles.block, "D": d, "DV": dv}
    code = functions(case.score)
    terms = {
        **{"VALUE": code.value, "SLOPE": code.slope, "SPREAD": code.spread},
        "SCORE": case.score != S,
        "BIAS": "bias" in case.features,
        "DROP": "dropout" in case.features,
    }
    return {**shape, **terms, "ONE": tiles.one, "PRECISION": precision, **launch}


def described(x: Tensor) -> Any:
    """(..., tokens, features) as the copy engine reads it: a block of one head at a time."""
    from triton.tools.tensor_descriptor import (  # type: ignore[import-untyped]
        TensorDescriptor,
    )

    shape, strides, block, fits = _layout(x.shape, x.stride(), x.element_size())
    if not fits or x.data_ptr() % 16:
        x = torch.empty_like(x, memory_format=torch.contiguous_format).copy_(x)
        shape, strides, block, _ = _layout(x.shape, x.stride(), x.element_size())
    return TensorDescriptor(x, shape, strides, block)


@lru_cache(maxsize=1024)
def _layout(
    size: torch.Size, stride: tuple[int, ...], bytes_: int
) -> tuple[list[int], list[int], list[int], bool]:
    """As (heads, tokens, features): shape, strides and block, and whether the chip can read it."""
    *lead, n, d = size
    *steps, near, _ = stride
    far = [step for step, count in zip(steps, lead, strict=True) if count > 1]
    apart, near = far[-1] if far else n * d, near if n > 1 else d
    fits = all(step == apart * lead[-1] for step in far[:-1])
    fits &= all(step > 0 and step * bytes_ % 16 == 0 for step in (apart, near))
    return [math.prod(lead), n, d], [apart, near, 1], [1, BLOCK, d], fits


def _cut(x: Tensor, features: int) -> Tensor:
    """Without the features of the padding."""
    return x if x.shape[-1] == features else x[..., :features]


def padded(x: Tensor) -> Tensor:
    """With features next to each other, their number a power of two of at least 16."""
    width = max(16, 1 << (x.shape[-1] - 1).bit_length())
    if width != x.shape[-1]:
        return pad(x, (0, width - x.shape[-1]))
    return x if x.stride(-1) == 1 else x.contiguous()
