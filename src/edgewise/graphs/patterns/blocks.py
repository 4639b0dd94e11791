"""Block-diagonal attention."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from edgewise.graphs.checks import check_memory, integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class blocks(Pattern):
    """Pairs of one block: {(i, j) : ⌊(i - offset) / size⌋ = ⌊(j - offset) / size⌋}.

    Blocks begin at `offset`, before which there is a shorter one: on both axes of a `grid`, these
    are the shifted windows of Swin.

    >>> blocks(2).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]]
    >>> blocks(2, offset=1).edges(3).T.tolist()
    [[0, 0], [1, 1], [1, 2], [2, 1], [2, 2]]
    """

    ignores_lengths = True

    size: int
    offset: int = 0

    def __post_init__(self) -> None:
        integer(self.size, "size", 1)
        integer(self.offset, "offset")

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        check_memory(16 * -(-n // self.size), f"{n:,} tokens in blocks of {self.size}")
        first = np.arange(self.offset % self.size - self.size, n, self.size)
        first, last = np.maximum(first, 0), first + self.size
        return trapezoids((first, last), first, last)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        begin = self.offset % self.size - self.size
        return (i - begin) // self.size == (j - begin) // self.size
