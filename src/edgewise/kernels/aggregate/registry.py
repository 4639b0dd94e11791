"""All kernels of aggregation, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torch import Tensor

from edgewise.kernels.aggregate import bags, numba_rows, reference, triton_rows
from edgewise.kernels.aggregate.contract import Case, Choice, Implementation, first
from edgewise.kernels.aggregate.index import Half
from edgewise.kernels.chosen import Chosen, is_watched, note

IMPLEMENTATIONS: tuple[Implementation, ...] = (bags, numba_rows, triton_rows, reference)


@lru_cache(maxsize=256)
def choose(case: Case) -> Choice:
    """The kernel for a case: the first that accepts it."""
    return first(case, IMPLEMENTATIONS)


def others(case: Case) -> dict[str, str]:
    """Why not each of the kernels that a case does not run on."""
    chosen = choose(case).name
    return {
        kernel.name: kernel.refuses(case) or f"{chosen} is asked first"
        for kernel in IMPLEMENTATIONS
        if kernel.name != chosen
    }


def kernel(operation: str, x: Tensor, half: Half) -> Callable[..., Any]:
    """What computes an operation on tensors like these."""
    case = Case(operation, half.entries, x.shape[1], x.dtype, x.device.type)
    if is_watched():
        note(Chosen(operation, choose(case).name, tuple(others(case).items())))
    return choose(case).implementation.operations[operation]
