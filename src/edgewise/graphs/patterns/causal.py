"""Causal attention."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class causal(Pattern):
    """Each query attends to its own and earlier positions: {(i, j) : j ≤ i}.

    >>> causal().count(4)
    10
    """

    ignores_lengths = True

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        return trapezoids((0, n), 0, 1, slope=(0, 1))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return j <= i
