"""Sums, dot products and extremes along entries on a GPU: one program per piece of a segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.aggregate.contract import Case, lacks
from edgewise.kernels.aggregate.index import Half
from edgewise.kernels.availability import no_triton

name = "triton_rows"
WIDEST = 128  # columns of one program
SHORT = 4  # entries of a segment, on average, below which a program takes several segments
TILE, WARPS = 512, 1  # numbers that a program reads at a time, and its warps


def refuses(case: Case) -> str | None:
    if reason := no_triton(case.device):
        return reason
    if case.dtype == torch.float64:
        return "it does not compute in float64"
    return lacks(case, operations)


def total(x: Tensor, scale: Tensor | None, half: Half) -> Tensor:
    x = _rows(x)
    scale = None if scale is None else scale.contiguous()
    out, part = _results(x, half)
    arguments = (x, x if scale is None else scale, out, part, *_work(half))
    few = half.entries < SHORT * half.segments
    _launch(
        "total_short" if few else "total", half, x, arguments, side=few, SCALE=scale is not None
    )
    return _merged(out, part, half, lambda parts: total(parts, None, half.parts))


def dots(y: Tensor, x: Tensor, half: Half) -> Tensor:
    x, y = _rows(x), _rows(y)
    out = x.new_empty(half.entries)
    _launch("dots", half, x, (x, y, out, *_work(half)), across=False, other=y.stride(0))
    return out


def extreme(x: Tensor, largest: bool, half: Half) -> tuple[Tensor, Tensor]:
    """Empty segments have -∞ (∞ for the smallest), and nobody has it."""
    x = _rows(x)
    out, part = _results(x, half)
    ties, part_ties = _results(x, half)
    sign = 1.0 if largest else -1.0
    arguments = (x, out, part, ties, part_ties, *_work(half))
    _launch("extreme", half, x, arguments, sign=sign)
    if half.cut:
        top = extreme(part, largest, half.parts)[0]
        ties[half.split] = equal_total(part_ties, part, top, half.parts).to(ties.dtype)
        out[half.split] = top.to(out.dtype)
    return out, ties


def equal_total(a: Tensor, x: Tensor, y: Tensor, half: Half) -> Tensor:
    a, x, y = _rows(a), _rows(x), _rows(y)
    out, part = _results(a, half)
    arguments = (a, x, y, out, part, *_work(half))
    _launch("equal_total", half, x, arguments, second=a.stride(0), other=y.stride(0))
    return _merged(out, part, half, lambda parts: total(parts, None, half.parts))


def _rows(x: Tensor) -> Tensor:
    """Any stride from row to row, none within."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _results(x: Tensor, half: Half) -> tuple[Tensor, Tensor]:
    """The result of each segment, and those of parts, which keep their digits."""
    d = x.shape[1]
    return x.new_empty(half.segments, d), x.new_empty(half.slots, d, dtype=torch.float32)


def _merged(out: Tensor, part: Tensor, half: Half, merge: Callable[[Tensor], Tensor]) -> Tensor:
    if half.cut:
        out[half.split] = merge(part).to(out.dtype)
    return out


def _work(half: Half) -> tuple[Tensor, ...]:
    return half.pieces, half.rows, half.owner, half.slot


def _launch(
    kernel: str,
    half: Half,
    x: Tensor,
    arguments: tuple[Any, ...],
    *,
    across: bool = True,
    side: bool = False,
    **numbers: Any,
) -> None:
    """Blocks of columns are programs of their own if `across`, else one after another.

    If `side`, a program has as many pieces side by side as it else reads entries at a time.
    """
    from edgewise.kernels.aggregate import triton_rows_kernels

    programs, d = half.pieces.shape[0] - 1, x.shape[1]
    if not programs or not d:
        return
    wide = min(WIDEST, max(4, 1 << (d - 1).bit_length()))
    entries = min(max(TILE // wide, 1), 32)
    if side:
        numbers["pieces"], programs = programs, -(-programs // entries)
    grid = (programs, -(-d // wide) if across else 1)
    getattr(triton_rows_kernels, kernel)[grid](
        *arguments, d, x.stride(0), **numbers, CUT=half.cut, E=entries, D=wide, num_warps=WARPS
    )


operations: dict[str, Callable[..., Any]] = {
    "total": total,
    "dots": dots,
    "extreme": extreme,
    "equal_total": equal_total,
}
