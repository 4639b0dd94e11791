"""Dilated sliding-window attention."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class dilated(Pattern):
    """Up to `radius` keys on each side, `step` apart:
    {(i, j) : |i - j| ≤ radius·step, (i - j) mod step = 0}.

    >>> dilated(1, 2).edges(4).T.tolist()
    [[0, 0], [0, 2], [1, 1], [1, 3], [2, 0], [2, 2], [3, 1], [3, 3]]
    """

    ignores_lengths = True

    radius: int
    step: int

    def __post_init__(self) -> None:
        integer(self.radius, "radius")
        integer(self.step, "step", 1)

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        reach = min(self.radius, max(n, m) // self.step + 1) * self.step
        return trapezoids((0, n), -reach, reach + 1, slope=(1, 1), step=self.step)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        apart = (i - j).abs()
        return (apart <= self.radius * self.step) & (apart % self.step == 0)
