"""Full attention."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class full(Pattern):
    """All pairs: {(i, j)}.

    >>> full().count(4)
    16
    """

    ignores_lengths = True

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        return trapezoids((0, n), 0, m)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return torch.ones_like(i + j, dtype=torch.bool)
