"""Strided attention."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from edgewise.graphs.checks import check_memory, integer
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, joined, trapezoids


@dataclass(frozen=True, repr=False)
class strided(Pattern):
    """Pairs whose distance is a multiple of `step`: {(i, j) : (i - j) mod step = 0}.

    With `& causal()` the far half of the strided Sparse Transformer.

    >>> strided(2).edges(4).T.tolist()
    [[0, 0], [0, 2], [1, 1], [1, 3], [2, 0], [2, 2], [3, 1], [3, 3]]
    """

    ignores_lengths = True

    step: int

    def __post_init__(self) -> None:
        integer(self.step, "step", 1)

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        step = self.step
        if step == 1:
            return trapezoids((0, n), 0, m)
        check_memory(32 * -(-n // step), f"{n:,} tokens in tiles of {step}")
        # Row t of each tile of `step` rows has the keys t, t + step, ...: the first m mod step
        # rows have one key more than the others.
        tile, (keys, more) = np.arange(0, n, step), divmod(m, step)
        long = trapezoids((tile, tile + more), 0, keys * step + 1, slope=(1, 1), step=step)
        short = trapezoids(
            (tile + more, tile + step), more, more + (keys - 1) * step + 1, slope=(1, 1), step=step
        )
        return joined(long, short) if keys else long

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (i - j) % self.step == 0
