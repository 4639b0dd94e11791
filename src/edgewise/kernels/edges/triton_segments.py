"""Reductions of segments and grouped products on a GPU: one program per piece, hubs split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.index import CHUNK, TILE, EdgeIndex, Grouping, SplitCSR, consecutive

WIDEST = 128  # columns of one program
SHORT = 4  # edges of a segment, on average, below which a program takes several segments
READ, WARPS = 512, 1  # numbers that a program reads at a time, and its warps
PRODUCT, PRODUCT_WARPS = 64, 4  # columns of one grouped product, and its warps


def segment_sum(
    x: Tensor, scale: Tensor | None, column_scale: Tensor | None, index: EdgeIndex
) -> Tensor:
    return segment_sums(x, scale, index.rows)


def segment_sums(x: Tensor, scale: Tensor | None, csr: SplitCSR) -> Tensor:
    x = _rows(x)
    scale = None if scale is None else scale.contiguous()
    out, part = _results(x, csr)
    arguments = (x, x if scale is None else scale, out, part, *work(csr))
    short = csr.edges < SHORT * csr.segments
    name = "segment_sum_short" if short else "segment_sum"
    _launch(name, csr, x, arguments, beside=short, SCALE=scale is not None)
    return _merged(out, part, csr)


def edge_dots(y: Tensor, x: Tensor, index: EdgeIndex) -> Tensor:
    x, y, csr = _rows(x), _rows(y), index.rows
    out = x.new_empty(csr.edges)
    _launch("edge_dots", csr, x, (x, y, out, *work(csr)), across=False, other=y.stride(0))
    return out


def segment_extreme(x: Tensor, largest: bool, index: EdgeIndex) -> tuple[Tensor, Tensor]:
    """Empty segments have -∞ (∞ for the smallest), and no edge has it."""
    return _extreme(x, largest, index.rows)


def _extreme(x: Tensor, largest: bool, csr: SplitCSR) -> tuple[Tensor, Tensor]:
    x = _rows(x)
    (out, part), (ties, part_ties) = _results(x, csr), _results(x, csr)
    arguments = (x, out, part, ties, part_ties, *work(csr))
    _launch("segment_extreme", csr, x, arguments, sign=1.0 if largest else -1.0)
    if csr.is_split:
        top = _extreme(part, largest, csr.parts)[0]
        ties[csr.split] = _equal_sum(part_ties, part, top, csr.parts).to(ties.dtype)
        out[csr.split] = top.to(out.dtype)
    return out, ties


def equal_sum(a: Tensor, x: Tensor, y: Tensor, index: EdgeIndex) -> Tensor:
    return _equal_sum(a, x, y, index.rows)


def _equal_sum(a: Tensor, x: Tensor, y: Tensor, csr: SplitCSR) -> Tensor:
    a, x, y = _rows(a), _rows(x), _rows(y)
    out, part = _results(a, csr)
    arguments = (a, x, y, out, part, *work(csr))
    _launch("equal_sum", csr, x, arguments, second=a.stride(0), other=y.stride(0))
    return _merged(out, part, csr)


def _rows(x: Tensor) -> Tensor:
    """Contiguous features, any stride from row to row."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _results(x: Tensor, csr: SplitCSR) -> tuple[Tensor, Tensor]:
    """The result of each segment, and partial ones in float32."""
    d = x.shape[1]
    return x.new_empty(csr.segments, d), x.new_empty(csr.slots, d, dtype=torch.float32)


def _merged(out: Tensor, part: Tensor, csr: SplitCSR) -> Tensor:
    if csr.is_split:
        out[csr.split] = segment_sums(part, None, csr.parts).to(out.dtype)
    return out


def work(csr: SplitCSR) -> tuple[Tensor, ...]:
    return csr.pieces, csr.index, csr.owner, csr.slot


def _launch(
    kernel: str,
    csr: SplitCSR,
    x: Tensor,
    arguments: tuple[Any, ...],
    *,
    across: bool = True,
    beside: bool = False,
    **numbers: Any,
) -> None:
    """Blocks of columns are programs of their own if `across`, else one after another.

    If `beside`, a program has as many pieces side by side as it else reads edges at a time.
    """
    from edgewise.kernels.edges import triton_segment_kernels

    programs, d = csr.pieces.shape[0] - 1, x.shape[1]
    if not programs or not d:
        return
    wide = min(WIDEST, max(4, 1 << (d - 1).bit_length()))
    edges = min(max(READ // wide, 1), 32)
    if beside:
        numbers["pieces"], programs = programs, -(-programs // edges)
    grid = (programs, -(-d // wide) if across else 1)
    getattr(triton_segment_kernels, kernel)[grid](
        *arguments, d, x.stride(0), **numbers, SPLIT=csr.is_split, E=edges, D=wide, num_warps=WARPS
    )


def grouped_linear(x: Tensor, family: Tensor, groups: Grouping) -> Tensor:
    """All members in one launch."""
    from edgewise.kernels.edges import triton_segment_kernels

    x, family = x.contiguous(), family.contiguous()
    (m, d), tiles = family.shape[1:], groups.tile_member.shape[0]
    out = x.new_empty(x.shape[0], m)
    if tiles and m:
        work = (groups.order, groups.ptr, groups.tile_member, groups.tile_low)
        n, k = _size(m), _size(d)
        triton_segment_kernels.grouped_linear[(tiles, -(-m // n))](
            x, family, out, *work, m, d,
            R=TILE, N=n, K=k, PRECISION=_precision(x, "tf32x3"), num_warps=PRODUCT_WARPS
        )  # fmt: skip
    return out


def grouped_outer(y: Tensor, x: Tensor, groups: Grouping) -> Tensor:
    from edgewise.kernels.edges import triton_segment_kernels

    y, x = y.contiguous(), x.contiguous()
    m, d, chunks = y.shape[1], x.shape[1], groups.chunk_member.shape[0]
    part = x.new_empty(chunks, m, d, dtype=torch.float32)
    if chunks and m and d:
        work = (groups.order, groups.ptr, groups.chunk_member, groups.chunk_low)
        n, k = _size(m), _size(d)
        triton_segment_kernels.grouped_outer[(chunks, -(-m // n), -(-d // k))](
            y, x, part, *work, m, d,
            R=32, CHUNK=CHUNK, N=n, K=k, PRECISION=_precision(x, "ieee"), num_warps=PRODUCT_WARPS
        )  # fmt: skip
    found = segment_sums(part.flatten(1), None, consecutive(groups.chunk_ptr, chunks))
    return found.view(-1, m, d).to(x.dtype)


def _size(columns: int) -> int:
    return min(max(16, 1 << (columns - 1).bit_length()), PRODUCT)


def _precision(x: Tensor, exact: str) -> str:
    """As torch's own matrix products are set to; three products of halves are exact, too."""
    quick = x.dtype != torch.float32 or torch.get_float32_matmul_precision() != "highest"
    return "tf32" if quick else exact


OPERATIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        segment_sum, edge_dots, segment_extreme, equal_sum, grouped_linear, grouped_outer,
    )
}  # fmt: skip
