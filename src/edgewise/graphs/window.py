"""Every token hears its neighbours."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.graphs.checks import whole
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, pieces


@dataclass(frozen=True, repr=False)
class window(Pattern):
    """Pairs at distance at most `radius`: {(i, j) : |i - j| ≤ radius}.

    >>> window(1).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 1], [2, 2]]
    """

    radius: int

    def __post_init__(self) -> None:
        whole(self.radius, "radius")

    def pieces(self, n: int, m: int) -> Pieces:
        return pieces((0, n), -self.radius, self.radius + 1, slope=(1, 1))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (i - j).abs() <= self.radius
