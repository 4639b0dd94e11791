"""The rows of a mask as a pattern, for kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs import causal, full
from edgewise.graphs.by_blocks import ByBlocks
from edgewise.graphs.int_array import IntArray
from edgewise.graphs.pattern import Pattern
from edgewise.ground.masks.cells import Order
from edgewise.ground.masks.pair_tests import ListTest
from edgewise.layouts import Rows, Trapezoids, rows_of_trapezoids
from edgewise.layouts.bitmap import SLAB, Bitmap

MOST_RUNS = 1 << 14
DENSE = 12  # times the pairs are as many as all: then blocks cost less than a list
SHORT = 16  # pairs of a run


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


@dataclass(frozen=True, repr=False, eq=False)
class tested(ByBlocks):
    """The pairs of a mask as bits: kernels read its blocks, rows are made on demand."""

    bitmap: Bitmap

    def __repr__(self) -> str:
        return f"mask of {self.bitmap.count():,} pairs"


def pattern_of_rows(rows: Rows | Bitmap) -> Pattern:
    """The rows as a pattern that kernels know by name, or as one of their own."""
    if isinstance(rows, Bitmap):
        return tested(rows)
    if rows.count() == rows.n * rows.m:
        return full()
    if rows.n == rows.m and rows.same_as(causal().rows(rows.n)):
        return causal()
    if is_irregular(rows):
        return tested(as_bits(rows))
    runs = IntArray(np.stack(rows.trapezoids().parts, 1))
    return masked(runs, rows.n, rows.m, rows.count(), (rows,))


def is_irregular(rows: Rows) -> bool:
    """Whether pairs are many, and in so many short runs that blocks of them are not alike."""
    runs = len(rows.start)
    dense = DENSE * rows.count() >= rows.n * rows.m
    return runs > MOST_RUNS and dense and rows.count() < SHORT * runs


def as_bits(rows: Rows) -> Bitmap:
    """The same pairs as bits."""
    test = ListTest(rows, Order(np.arange(rows.n), np.arange(rows.m)))
    return Bitmap(rows.n, rows.m, test.holds, *test.bounds(SLAB))
