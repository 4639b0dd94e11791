"""Everybody hears the last tokens of every stretch."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import room, whole
from edgewise.graphs.errors import BadSize
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, pieces


@dataclass(frozen=True, repr=False)
class fixed(Pattern):
    """The last `width` tokens of every `step`: {(i, j) : j mod step ≥ step - width}.

    With `& causal()` the far half of the fixed Sparse Transformer; its near half is
    `blocks(step) & causal()`.

    >>> fixed(2).edges(3).T.tolist()
    [[0, 1], [1, 1], [2, 1]]
    """

    step: int
    width: int = 1

    def __post_init__(self) -> None:
        whole(self.step, "step", 1)
        if whole(self.width, "width", 1) > self.step:
            raise BadSize(
                f"`width` must be at most `step` = {self.step}, got {self.width}",
                caller(),
                "a stretch of `step` tokens has no more than that",
            )

    def pieces(self, n: int, m: int) -> Pieces:
        if self.width == self.step:
            return pieces((0, n), 0, m)
        room(16 * min(self.width, m), f"{self.width:,} columns of each stretch")
        first = np.arange(self.step - self.width, min(self.step, m))
        return pieces((0, n), first, m, step=self.step)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (j + 0 * i) % self.step >= self.step - self.width
