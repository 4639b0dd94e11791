"""Two-dimensional neighbourhoods, as of the patches of an image."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from edgewise.graphs.checks import check_length, check_memory, integer, sequence_lengths
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, rows_of_pairs


@dataclass(frozen=True, repr=False)
class grid(Pattern):
    """Cells of a grid at most `radius` rows and columns apart, numbered row by row:
    {(i, j) : |⌊i/w⌋ - ⌊j/w⌋| ≤ radius, |i mod w - j mod w| ≤ radius}, for n = height·w.

    >>> grid(2, 3, 1).edges(6).T.tolist()[:4]
    [[0, 0], [0, 1], [0, 3], [0, 4]]
    """

    height: int
    width: int
    radius: int

    def __post_init__(self) -> None:
        integer(self.height, "height", 1)
        integer(self.width, "width", 1)
        integer(self.radius, "radius")
        integer(self.height * self.width, "height·width")

    def compute_rows(self, n: int, m: int) -> Rows:
        count = self.count(n, m)
        check_memory(4 * count, f"a list of {count:,} pairs")
        (a, b), (c, d) = (_near(size, self.radius) for size in (self.height, self.width))
        i = (a[:, None] * self.width + c).ravel()
        j = (b[:, None] * self.width + d).ravel()
        return rows_of_pairs(n, m, i, j)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        self._check(n, m)
        down = (i // self.width - j // self.width).abs() <= self.radius
        return down & ((i % self.width - j % self.width).abs() <= self.radius)

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs: of rows times of columns."""
        self._check(*sequence_lengths(n, m))
        return _near_count(self.height, self.radius) * _near_count(self.width, self.radius)

    def _check(self, n: int, m: int) -> None:
        check_length(self.height * self.width, n, m, repr(self))


def _near(size: int, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of numbers below `size` at most `radius` apart."""
    radius = min(radius, size - 1)
    first = np.repeat(np.arange(size), 2 * radius + 1)
    second = first + np.tile(np.arange(-radius, radius + 1), size)
    inside = (second >= 0) & (second < size)
    return first[inside], second[inside]


def _near_count(size: int, radius: int) -> int:
    radius = min(radius, size - 1)
    return size * (2 * radius + 1) - radius * (radius + 1)
