"""What a kernel of aggregation is asked to do, and what it must provide.

The four operations are closed under differentiation, so that gradients of any order are them too:

    total        y_s = Σ_e scale_e · x[rows_e]
    dots         z_e = y_s · x[rows_e]
    extreme      y_s = max_e x[rows_e] (or min), and how many entries have it
    equal_total  y_s = Σ_e a[rows_e] where x[rows_e] = y_s, else 0: an extreme's gradient

for the entries e of each segment s; element by element in the columns. x is (rows, d).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

OPERATIONS = ("total", "dots", "extreme", "equal_total")


@dataclass(frozen=True)
class Case:
    """One call without its numbers."""

    operation: str
    entries: int
    d: int
    dtype: torch.dtype
    device: str


class Implementation(Protocol):
    """A kernel: the module of its name, with the operations that it has."""

    @property
    def name(self) -> str: ...
    @property
    def operations(self) -> dict[str, Callable[..., Any]]: ...
    def refuses(self, case: Case) -> str | None: ...


@dataclass(frozen=True)
class Choice:
    """The first kernel that accepts, and why not those before it."""

    implementation: Implementation
    refusals: dict[str, str]

    @property
    def name(self) -> str:
        return self.implementation.name


def lacks(case: Case, operations: dict[str, Callable[..., Any]]) -> str | None:
    """The refusal of an operation that a kernel does not have."""
    return None if case.operation in operations else f"it does not compute {case.operation}"


def first(case: Case, implementations: Sequence[Implementation]) -> Choice:
    refusals: dict[str, str] = {}
    for implementation in implementations:
        reason = implementation.refuses(case)
        if reason is None:
            return Choice(implementation, refusals)
        refusals[implementation.name] = reason
    raise AssertionError("the reference takes every case")
