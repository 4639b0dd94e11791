"""A prefix that everybody hears, and a causal rest."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.graphs.checks import whole
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, joined, pieces


@dataclass(frozen=True, repr=False)
class prefix(Pattern):
    """The first `length` tokens and those before: {(i, j) : j < length or j ≤ i}.

    >>> prefix(2).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
    """

    length: int

    def __post_init__(self) -> None:
        whole(self.length, "length")

    def pieces(self, n: int, m: int) -> Pieces:
        before = pieces((0, n), 0, 1, slope=(0, 1))
        return joined(before, pieces((0, n), 0, self.length))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (j < self.length) | (j <= i)
