"""Sliding windows that are moved inside at the borders (neighbourhood attention)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.checks import check_memory, check_square, integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows
from edgewise.layouts.rows import compressed, row_by_row


@dataclass(frozen=True, repr=False)
class clamped_window(Pattern):
    """2·radius + 1 keys of every query, `step` apart, also at the borders:
    {(i, j) : j ≡ i (mod step), |⌊j / step⌋ - c| ≤ radius}, where c is ⌊i / step⌋ moved to
    [radius, L - 1 - radius], for L tokens ≡ i (mod step).

    The neighbourhoods of [NATTEN](https://arxiv.org/abs/2204.07143) on each axis of a `grid`.

    >>> clamped_window(1).edges(4).T.tolist()[:6]
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    """

    radius: int
    step: int = 1

    def __post_init__(self) -> None:
        integer(self.radius, "radius")
        integer(self.step, "step", 1)

    def compute_rows(self, n: int, m: int) -> Rows:
        check_square(self, n, m)
        check_memory(8 * n, f"the rows of {n:,} queries")
        i = np.arange(n)
        first, count = (x.numpy() for x in self._keys(torch.from_numpy(i), n))
        start = i % self.step + first * self.step
        step = np.where(count > 1, self.step, 1)
        stop = start + (count - 1) * self.step + 1
        return compressed(row_by_row(n, n, np.arange(n + 1), start, stop, step))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        check_square(self, n, m)
        first, count = self._keys(i, n)
        at = j // self.step - first
        return (i % self.step == j % self.step) & (at >= 0) & (at < count)

    def _keys(self, i: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The first key and the number of keys of queries, among those of their residue class."""
        tokens = (n - 1 - i % self.step) // self.step + 1
        count = tokens.clamp(max=2 * self.radius + 1)
        first = torch.minimum((i // self.step - self.radius).clamp(min=0), tokens - count)
        return first, count
