"""The fixed pattern of the Sparse Transformer: summary tokens at the end of each block."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import check_memory, integer
from edgewise.graphs.errors import BadSize
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class fixed(Pattern):
    """The last `width` tokens of every `step`: {(i, j) : j mod step ≥ step - width}.

    With `& causal()` the far half of the fixed Sparse Transformer; its near half is
    `blocks(step) & causal()`.

    >>> fixed(2).edges(3).T.tolist()
    [[0, 1], [1, 1], [2, 1]]
    """

    ignores_lengths = True

    step: int
    width: int = 1

    def __post_init__(self) -> None:
        integer(self.step, "step", 1)
        if integer(self.width, "width", 1) > self.step:
            raise BadSize(
                f"`width` must be at most `step` = {self.step}, got {self.width}",
                caller(),
                "a block of `step` tokens has no more than that",
            )

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        if self.width == self.step:
            return trapezoids((0, n), 0, m)
        check_memory(16 * min(self.width, m), f"{self.width:,} columns of each block")
        first = np.arange(self.step - self.width, min(self.step, m))
        return trapezoids((0, n), first, m, step=self.step)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (j + 0 * i) % self.step >= self.step - self.width
