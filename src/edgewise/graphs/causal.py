"""Every token hears itself and those before it."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, pieces


@dataclass(frozen=True, repr=False)
class causal(Pattern):
    """Pairs that do not look ahead: {(i, j) : j ≤ i}.

    >>> causal().count(4)
    10
    """

    def pieces(self, n: int, m: int) -> Pieces:
        return pieces((0, n), 0, 1, slope=(0, 1))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return j <= i
