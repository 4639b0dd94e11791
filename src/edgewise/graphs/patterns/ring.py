"""Sliding-window attention on a circular sequence."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, joined, trapezoids


@dataclass(frozen=True, repr=False)
class ring(Pattern):
    """A window that wraps: {(i, j) : |i - j| ≤ radius or |i - j| ≥ m - radius}.

    >>> ring(1).degrees(5).tolist()
    [3, 3, 3, 3, 3]
    """

    radius: int

    def __post_init__(self) -> None:
        integer(self.radius, "radius")

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        r = self.radius
        before = trapezoids((0, n), m - r, m, slope=(1, 0))
        after = trapezoids((0, n), 0, r + 1 - m, slope=(0, 1))
        return joined(trapezoids((0, n), -r, r + 1, slope=(1, 1)), before, after)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        apart = (i - j).abs()
        return torch.logical_or(apart <= self.radius, apart >= m - self.radius)
