"""The rows of a mask as a pattern, for kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs import causal, full
from edgewise.graphs.int_array import IntArray
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, Trapezoids, rows_of_trapezoids


@dataclass(frozen=True, repr=False)
class masked(Pattern):
    """The pairs of a mask for n queries and m keys, as trapezoids (count, 7)."""

    runs: IntArray
    n: int
    m: int
    pairs: int
    made: tuple[Rows, ...] = field(default=(), compare=False)

    def compute_rows(self, n: int, m: int) -> Rows:
        if self.made:
            return self.made[0]
        return rows_of_trapezoids(n, m, Trapezoids(*self.runs.array.T))

    def __repr__(self) -> str:
        return f"mask of {self.pairs:,} pairs"


def pattern_of_rows(rows: Rows) -> Pattern:
    """The rows as a pattern that kernels know by name, or as one of their own."""
    if rows.count() == rows.n * rows.m:
        return full()
    if rows.n == rows.m and rows.same_as(causal().rows(rows.n)):
        return causal()
    runs = IntArray(np.stack(rows.trapezoids().parts, 1))
    return masked(runs, rows.n, rows.m, rows.count(), (rows,))
