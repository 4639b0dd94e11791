"""Block-diagonal attention."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from edgewise.graphs.checks import check_memory, integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class blocks(Pattern):
    """Pairs of one block: {(i, j) : ⌊i / size⌋ = ⌊j / size⌋}.

    >>> blocks(2).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]]
    """

    ignores_lengths = True

    size: int

    def __post_init__(self) -> None:
        integer(self.size, "size", 1)

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        check_memory(16 * -(-n // self.size), f"{n:,} tokens in blocks of {self.size}")
        first = np.arange(0, n, self.size)
        return trapezoids((first, first + self.size), first, first + self.size)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return i // self.size == j // self.size
