"""Tokens in stretches of equal length, each for itself."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from edgewise.graphs.checks import room, whole
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, pieces


@dataclass(frozen=True, repr=False)
class blocks(Pattern):
    """Pairs of one block: {(i, j) : ⌊i / size⌋ = ⌊j / size⌋}.

    >>> blocks(2).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]]
    """

    size: int

    def __post_init__(self) -> None:
        whole(self.size, "size", 1)

    def pieces(self, n: int, m: int) -> Pieces:
        room(16 * -(-n // self.size), f"{n:,} tokens in blocks of {self.size}")
        first = np.arange(0, n, self.size)
        return pieces((first, first + self.size), first, first + self.size)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return i // self.size == j // self.size
