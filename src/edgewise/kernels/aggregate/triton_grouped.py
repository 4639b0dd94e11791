"""Products with the members of a family on a GPU: all members in one launch."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.kernels.aggregate import triton_rows
from edgewise.kernels.aggregate.grouping import CHUNK, TILE, Grouping
from edgewise.kernels.aggregate.index import Half
from edgewise.kernels.availability import no_triton

name = "triton_grouped"
WIDEST, WARPS = 64, 4  # columns of one product, and warps


def refuses(dtype: torch.dtype, device: str) -> str | None:
    if reason := no_triton(device):
        return reason
    return "it does not compute in float64" if dtype == torch.float64 else None


def linear(x: Tensor, family: Tensor, groups: Grouping) -> Tensor:
    from edgewise.kernels.aggregate import triton_grouped_kernels

    x, family = x.contiguous(), family.contiguous()
    (m, d), tiles = family.shape[1:], groups.tile_member.shape[0]
    out = x.new_empty(x.shape[0], m)
    if tiles and m:
        work = (groups.order, groups.ptr, groups.tile_member, groups.tile_low)
        n, k = _size(m), _size(d)
        triton_grouped_kernels.linear[(tiles, -(-m // n))](
            x,
            family,
            out,
            *work,
            m,
            d,
            R=TILE,
            N=n,
            K=k,
            PRECISION=_precision(x, "tf32x3"),
            num_warps=WARPS,
        )
    return out


def outer(y: Tensor, x: Tensor, groups: Grouping) -> Tensor:
    from edgewise.kernels.aggregate import triton_grouped_kernels

    y, x = y.contiguous(), x.contiguous()
    m, d, chunks = y.shape[1], x.shape[1], groups.chunk_member.shape[0]
    part = x.new_empty(chunks, m, d, dtype=torch.float32)
    if chunks and m and d:
        work = (groups.order, groups.ptr, groups.chunk_member, groups.chunk_low)
        n, k = _size(m), _size(d)
        triton_grouped_kernels.outer[(chunks, -(-m // n), -(-d // k))](
            y, x, part, *work, m, d,
            R=32, CHUNK=CHUNK, N=n, K=k, PRECISION=_precision(x, "ieee"), num_warps=WARPS
        )  # fmt: skip
    numbers = torch.arange(chunks, dtype=torch.int32, device=x.device)
    none = groups.ptr[:0]
    half = Half(groups.chunk_ptr, numbers, numbers, groups.chunk_ptr, none, none, none, none)
    found = triton_rows.total(part.flatten(1), None, half)
    return found.view(-1, m, d).to(x.dtype)


def _size(columns: int) -> int:
    return min(max(16, 1 << (columns - 1).bit_length()), WIDEST)


def _precision(x: Tensor, exact: str) -> str:
    """As torch's own products of matrices are set to; three products of halves are exact, too."""
    quick = x.dtype != torch.float32 or torch.get_float32_matmul_precision() != "highest"
    return "tf32" if quick else exact
