"""Prefix-LM attention: a bidirectional prefix, then causal."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, joined, trapezoids


@dataclass(frozen=True, repr=False)
class prefix(Pattern):
    """The first `length` tokens are visible to all, the rest is causal:
    {(i, j) : j < length or j ≤ i}.

    >>> prefix(2).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
    """

    ignores_lengths = True

    length: int

    def __post_init__(self) -> None:
        integer(self.length, "length")

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        before = trapezoids((0, n), 0, 1, slope=(0, 1))
        return joined(before, trapezoids((0, n), 0, self.length))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (j < self.length) | (j <= i)
