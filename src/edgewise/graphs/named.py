"""Patterns that are names for expressions."""

from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, Rows


class Named(Pattern):
    """A pattern that is a name for an expression of others."""

    def meaning(self) -> Pattern:
        raise NotImplementedError

    @property
    def is_arithmetic(self) -> bool:
        return self.meaning().is_arithmetic

    def form(self, n: int, m: int) -> Rows:
        return self.meaning().rows(n, m)

    def pieces(self, n: int, m: int) -> Pieces:
        return self.meaning().pieces(n, m)

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        return self.meaning().rows_between(n, m, first, last)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.meaning().holds(i, j, n, m)
