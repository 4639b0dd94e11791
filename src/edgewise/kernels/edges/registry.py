"""All kernels along edges, in order of preference, and the choice among them.

Operations on rows x (rows, d) are closed under differentiation, so that gradients of any order
are operations again; s is a segment and e each of its edges, which reads row j:

    segment_sum      y_s = Σ_e scale_e · x_j
    edge_dots        z_e = y_s · x_j
    segment_extreme  y_s = max_e x_j (or min), and how many edges have it
    segment_messages y_s = Σ_e f(rows that e reads), and `message_gradients`, for any f
    equal_sum        y_s = Σ_e a_j where x_j = y_s, else 0: the gradient of an extreme
    grouped_linear   y_r = W[t_r] x_r, a matrix of a family for each row
    grouped_outer    W_t = Σ_r y_r x_rᵀ over the rows of member t

`additive_attention` and its backward pass are those of `kernels.edges.attention`, and
`relational_attention` and its own those of `kernels.edges.relational`; attention with dot products
alone is chosen among more kernels, in `kernels.attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from edgewise.kernels.edges import (
    message_loops,
    messages,
    numba_attention,
    numba_relational,
    numba_segments,
    reference,
    relational,
    triton_attention,
    triton_relational,
    triton_segments,
)
from edgewise.kernels.edges.attention import additive_operations
from edgewise.kernels.edges.index import EdgeIndex, Grouping
from edgewise.kernels.kernel_choices import Chosen, is_watched, no_numba, no_triton, note

SEGMENTS = ("segment_sum", "edge_dots", "segment_extreme", "equal_sum")
MANY = 1 << 20  # numbers that loops read sooner than torch, by more than it costs to compile one
HALF = (torch.float16, torch.bfloat16)
REDUCTIONS = (*SEGMENTS, "segment_messages")  # of rows where they are


@dataclass(frozen=True)
class EdgeOperation:
    """One call without its numbers: `width` is that of the widest row; whether `many` are read."""

    operation: str
    width: int
    dtype: torch.dtype
    device: str
    many: bool = False


def reads_many(index: EdgeIndex | Grouping, width: int) -> bool:
    return isinstance(index, EdgeIndex) and index.edges * width > MANY


@dataclass(frozen=True, eq=False)
class Kernel:
    """Functions for some of the operations, and what else they refuse."""

    name: str
    operations: dict[str, Callable[..., Any]]
    limits: Callable[[EdgeOperation], str | None]

    def refuses(self, case: EdgeOperation) -> str | None:
        if reason := self.limits(case):
            return reason
        known = case.operation in self.operations
        return None if known else f"it does not compute {case.operation}"


def _embedding_bag(case: EdgeOperation) -> str | None:
    if case.device != "cpu":
        return f"it runs on a CPU, not on {case.device}"
    if not case.width:
        return "rows are empty"
    loops = case.many and case.dtype not in HALF and no_numba(case.device) is None
    return f"loops read more than {MANY} numbers sooner" if loops else None


def _numba(case: EdgeOperation) -> str | None:
    if case.operation == "segment_sum" and case.dtype in HALF and case.device == "cpu":
        return f"it would copy rows of {case.dtype}".replace("torch.", "")
    return no_numba(case.device)


def _triton(case: EdgeOperation) -> str | None:
    if reason := no_triton(case.device):
        return reason
    if case.dtype == torch.float64:
        return "it does not compute in float64"
    if "attention" in case.operation and case.width > triton_attention.WIDEST:
        return f"{case.width} features are more than {triton_attention.WIDEST}"
    return None


KERNELS = (
    Kernel("embedding_bag", {"segment_sum": numba_segments.embedding_bag}, _embedding_bag),
    Kernel(
        "numba",
        numba_segments.OPERATIONS
        | additive_operations(numba_attention)
        | numba_relational.OPERATIONS
        | message_loops.OPERATIONS,
        _numba,
    ),
    Kernel(
        "triton",
        triton_segments.OPERATIONS | triton_attention.OPERATIONS | triton_relational.OPERATIONS,
        _triton,
    ),
    Kernel(
        "reference",
        reference.OPERATIONS
        | additive_operations(reference)
        | relational.OPERATIONS
        | messages.OPERATIONS,
        lambda case: None,
    ),
)


@dataclass(frozen=True)
class EdgeChoice:
    """The first kernel that accepts, and why not each of the others that know the operation."""

    kernel: Kernel
    refusals: tuple[tuple[str, str], ...]


@lru_cache(maxsize=256)
def choose(case: EdgeOperation) -> EdgeChoice:
    """The kernel of a case.

    >>> choose(EdgeOperation("segment_sum", 8, torch.float32, "cpu")).kernel.name
    'embedding_bag'
    """
    chosen = next(kernel for kernel in KERNELS if kernel.refuses(case) is None)
    others = (x for x in KERNELS if x is not chosen and case.operation in x.operations)
    default = f"{chosen.name} is preferred"
    return EdgeChoice(chosen, tuple((x.name, x.refuses(case) or default) for x in others))


@lru_cache(maxsize=256)
def function(
    operation: str, width: int, dtype: torch.dtype, device: str, many: bool = False
) -> Callable[..., Any]:
    """What computes a case."""
    case = EdgeOperation(operation, width, dtype, device, many)
    return choose(case).kernel.operations[operation]


def note_choice(case: EdgeOperation) -> None:
    """Tell those who watch which kernel a case runs on."""
    if is_watched():
        choice = choose(case)
        note(Chosen(case.operation, choice.kernel.name, choice.refusals))
