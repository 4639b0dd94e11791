"""Dot products and extremes along entries on a CPU: loops over segments, on several threads."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from edgewise.kernels.aggregate import bags
from edgewise.kernels.aggregate.contract import Case, lacks
from edgewise.kernels.aggregate.index import Half
from edgewise.kernels.aggregate.reference import wide
from edgewise.kernels.availability import no_numba
from edgewise.kernels.threads import spread

name = "numba_rows"


def refuses(case: Case) -> str | None:
    return no_numba(case.device) or lacks(case, operations)


def dots(y: Tensor, x: Tensor, half: Half) -> Tensor:
    out = x.new_empty(half.entries, dtype=wide(x.dtype))
    _run("dots", half, x, (_array(y), _array(x), out.numpy()))
    return out.to(x.dtype)


def extreme(x: Tensor, largest: bool, half: Half) -> tuple[Tensor, Tensor]:
    """Empty segments have -∞ (∞ for the smallest), and nobody has it."""
    shape, kind = (len(half.pieces) - 1, x.shape[1]), wide(x.dtype)
    out, ties = x.new_empty(shape, dtype=kind), x.new_empty(shape, dtype=kind)
    sign = out.numpy().dtype.type(1 if largest else -1)
    _run("extreme", half, x, (_array(x), sign, out.numpy(), ties.numpy()))
    if half.cut:
        of, those, parts = out[half.slot >= 0], ties[half.slot >= 0], half.parts
        top = extreme(of, largest, parts)[0]
        out, ties = (
            half.assembled(out, top),
            half.assembled(ties, equal_total(those, of, top, parts)),
        )
    return out.to(x.dtype), ties.to(x.dtype)


def equal_total(a: Tensor, x: Tensor, y: Tensor, half: Half) -> Tensor:
    out = a.new_empty(len(half.pieces) - 1, a.shape[1], dtype=wide(a.dtype))
    _run("equal_total", half, x, (_array(a), _array(x), _array(y), out.numpy()))
    if half.cut:
        out = half.assembled(out, bags.total(out[half.slot >= 0], None, half.parts))
    return out.to(a.dtype)


def _run(loop: str, half: Half, x: Tensor, arguments: tuple[Any, ...]) -> None:
    graph = half.pieces.numpy(), half.rows.numpy(), half.owner.numpy()
    compiled: Callable[..., None] = getattr(_loops(), loop)
    spread(compiled, [(*graph, *arguments)], graph[0], numbers=half.entries * x.shape[1])


def _array(x: Tensor) -> np.ndarray:
    return x.detach().to(wide(x.dtype)).contiguous().numpy()


def _loops() -> ModuleType:
    from edgewise.kernels.aggregate import loops

    return loops


operations: dict[str, Callable[..., Any]] = {
    "dots": dots,
    "extreme": extreme,
    "equal_total": equal_total,
}
