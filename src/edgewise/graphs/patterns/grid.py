"""Products of patterns over a grid: neighbourhoods of pixels, of frames, axial attention."""

from dataclasses import dataclass
from math import prod

import numpy as np
from torch import Tensor

from edgewise.errors import caller, counted
from edgewise.graphs.algebra import pattern_of
from edgewise.graphs.checks import check_length, check_memory, integer, sequence_lengths
from edgewise.graphs.errors import SizeMismatch
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, Trapezoids
from edgewise.layouts.boxes import coordinates, pairs_of


@dataclass(frozen=True, init=False, repr=False)
class grid:
    """Tokens on a grid of these sizes, numbered row by row: called with a pattern for each axis,
    the pairs whose coordinates are in all of them,
    {(i, j) : (iₐ, jₐ) ∈ patternₐ for every axis a}.

    >>> from edgewise.graphs import causal, full, window
    >>> grid(2, 3)(window(1), window(1)).edges(6).T.tolist()[:4]
    [[0, 0], [0, 1], [0, 3], [0, 4]]
    >>> columns, rows = grid(8, 8)(full(), window(0)), grid(8, 8)(window(0), full())
    >>> (columns | rows).count(64)  # axial attention
    960
    >>> grid(4, 8, 8)(causal(), window(2), window(2)).count(256)  # earlier frames, near pixels
    11560
    """

    sizes: tuple[int, ...]

    def __init__(self, *sizes: int) -> None:
        if not sizes:
            raise SizeMismatch("a grid needs an axis", caller(), "write `grid(height, width)`")
        sizes = tuple(integer(size, "size", 1) for size in sizes)
        integer(prod(sizes), "number of cells")
        object.__setattr__(self, "sizes", sizes)

    def __call__(self, *patterns: Pattern) -> Pattern:
        """The pairs whose coordinates on each axis are in its pattern."""
        found = tuple(pattern_of(one) for one in patterns)
        if len(found) != len(self.sizes):
            count = counted(len(found), "pattern")
            raise SizeMismatch(
                f"`{self!r}` takes a pattern for each axis, {len(self.sizes)}, got {count}",
                caller(),
                "`full()` does not restrict an axis",
            )
        return grid_product(self.sizes, found)

    def __repr__(self) -> str:
        return f"grid({', '.join(map(str, self.sizes))})"


@dataclass(frozen=True, repr=False)
class grid_product(Pattern):
    """The pairs whose coordinates on each axis of a grid are in its pattern; see `grid`."""

    sizes: tuple[int, ...]
    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max(one.depth for one in self.patterns))
        object.__setattr__(self, "total", 1 + sum(one.total for one in self.patterns))

    @property
    def tokens(self) -> int:
        return prod(self.sizes)

    @property
    def axes(self) -> list[Rows]:
        """The normal form of each axis."""
        pairs = zip(self.patterns, self.sizes, strict=True)
        return [pattern.rows(size) for pattern, size in pairs]

    @property
    def is_arithmetic(self) -> bool:
        return all(one.is_arithmetic for one in self.patterns)

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        check_length(self.tokens, n, m, repr(self))
        *leading, last = self.axes
        p, width = last.trapezoids(), self.sizes[-1]
        count = prod(axis.count() for axis in leading) * len(p)
        check_memory(8 * count, f"the rows of {n:,} cells")
        i, j = (x[:, None] * width for x in pairs_of(leading))
        each = (i + p.top, i + p.bottom, j + p.start, j + p.stop, p.dstart, p.dstop, p.step)
        return Trapezoids(*(x.ravel() for x in np.broadcast_arrays(*each)))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        check_length(self.tokens, n, m, repr(self))
        both = zip(coordinates(i, self.sizes), coordinates(j, self.sizes), strict=True)
        each = [
            pattern.mask(a, b, size, size)
            for pattern, size, (a, b) in zip(self.patterns, self.sizes, both, strict=True)
        ]
        inside = each[0]
        for one in each[1:]:
            inside = inside & one
        return inside

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs: the product of those of the axes."""
        check_length(self.tokens, *sequence_lengths(n, m), repr(self))
        pairs = zip(self.patterns, self.sizes, strict=True)
        return prod(pattern.count(size) for pattern, size in pairs)

    def __repr__(self) -> str:
        listed = ", ".join(map(repr, self.patterns))
        return f"grid({', '.join(map(str, self.sizes))})({listed})"
