"""Sums on a CPU by torch's bags of embeddings: vectorised, threaded, nothing written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.aggregate.contract import Case, lacks
from edgewise.kernels.aggregate.index import Half

name = "bags"


def refuses(case: Case) -> str | None:
    if case.device != "cpu":
        return f"it runs on a CPU, not on {case.device}"
    if not case.d:
        return "rows are empty"
    return lacks(case, operations)


def total(x: Tensor, scale: Tensor | None, half: Half) -> Tensor:
    scale = None if scale is None else scale.to(x.dtype).contiguous()
    found = _bags(x.contiguous(), scale, half.rows, half.pieces)
    if not half.cut:
        return found
    return half.assembled(found, total(found[half.slot >= 0], None, half.parts))


def _bags(x: Tensor, scale: Tensor | None, rows: Tensor, ptr: Tensor) -> Tensor:
    return torch.ops.aten._embedding_bag_forward_only(x, rows, ptr, False, 0, False, scale, True)[0]


operations: dict[str, Callable[..., Any]] = {"total": total}
