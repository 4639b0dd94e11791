"""Aggregation written down, in plain torch: it takes every case and defines the results.

Entries are gathered some at a time, so that no more than that is ever written out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.aggregate.contract import Case
from edgewise.kernels.aggregate.index import Half

name = "reference"
CHUNK = 1 << 22  # numbers gathered at a time


def refuses(case: Case) -> str | None:
    return None


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision in which sums of `dtype` are kept."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _chunks(half: Half, d: int) -> list[tuple[Tensor, Tensor, slice]]:
    step = max(CHUNK // max(d, 1), 1)
    ids = half.ids
    return [
        (ids[at : at + step], half.rows[at : at + step], slice(at, at + step))
        for at in range(0, half.entries, step)
    ]


def total(x: Tensor, scale: Tensor | None, half: Half) -> Tensor:
    kind = wide(x.dtype)
    found = x.new_zeros(half.segments, x.shape[1], dtype=kind)
    for ids, rows, here in _chunks(half, x.shape[1]):
        read = x.index_select(0, rows).to(kind)
        if scale is not None:
            read = read * scale[here, None].to(kind)
        found.index_add_(0, ids, read)
    return found.to(x.dtype)


def dots(y: Tensor, x: Tensor, half: Half) -> Tensor:
    kind = wide(x.dtype)
    found = x.new_empty(half.entries)
    for ids, rows, here in _chunks(half, x.shape[1]):
        pair = y.index_select(0, ids).to(kind), x.index_select(0, rows).to(kind)
        found[here] = (pair[0] * pair[1]).sum(-1).to(x.dtype)
    return found


def extreme(x: Tensor, largest: bool, half: Half) -> tuple[Tensor, Tensor]:
    """Empty segments have -∞ (∞ for the smallest), and nobody has it."""
    worst = -torch.inf if largest else torch.inf
    found = x.new_full((half.segments, x.shape[1]), worst)
    for ids, rows, _ in _chunks(half, x.shape[1]):
        places = ids.long()[:, None].expand(-1, x.shape[1])
        kind = "amax" if largest else "amin"
        found.scatter_reduce_(0, places, x.index_select(0, rows), kind)
    ties = torch.zeros_like(found, dtype=wide(x.dtype))
    for ids, rows, _ in _chunks(half, x.shape[1]):
        same = x.index_select(0, rows) == found.index_select(0, ids)
        ties.index_add_(0, ids, same.to(ties.dtype))
    return found, ties.to(x.dtype)


def equal_total(a: Tensor, x: Tensor, y: Tensor, half: Half) -> Tensor:
    kind = wide(a.dtype)
    found = a.new_zeros(half.segments, a.shape[1], dtype=kind)
    for ids, rows, _ in _chunks(half, x.shape[1]):
        same = x.index_select(0, rows) == y.index_select(0, ids)
        found.index_add_(0, ids, torch.where(same, a.index_select(0, rows), 0).to(kind))
    return found.to(a.dtype)


operations: dict[str, Callable[..., Any]] = {
    "total": total,
    "dots": dots,
    "extreme": extreme,
    "equal_total": equal_total,
}
