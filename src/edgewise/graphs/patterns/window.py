"""Sliding-window attention."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class window(Pattern):
    """Pairs at distance at most `radius`: {(i, j) : |i - j| ≤ radius}.

    >>> window(1).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 1], [2, 2]]
    """

    ignores_lengths = True

    radius: int

    def __post_init__(self) -> None:
        integer(self.radius, "radius")

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        return trapezoids((0, n), -self.radius, self.radius + 1, slope=(1, 1))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (i - j).abs() <= self.radius
