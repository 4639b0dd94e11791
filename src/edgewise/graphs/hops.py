"""Patterns one after another: compose power."""

from dataclasses import dataclass

from edgewise.graphs.pattern import Expression, Pattern, written
from edgewise.layouts import Rows, composed, power


@dataclass(frozen=True, repr=False)
class composition(Expression):
    """{(i, k) : (i, j) ∈ first and (j, k) ∈ second for some j}; j ranges over the m keys."""

    first: Pattern
    second: Pattern

    @property
    def is_arithmetic(self) -> bool:
        return False

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        return composed(self.first.rows_between(n, m, first, last), self.second.rows(m, m))

    def __repr__(self) -> str:
        return f"{written(self.first, 4)}.compose({self.second!r})"


@dataclass(frozen=True, repr=False)
class powered(Expression):
    """pattern.compose(pattern)..., `hops` times the pattern; by squaring, until nothing changes."""

    pattern: Pattern
    hops: int

    @property
    def is_arithmetic(self) -> bool:
        return False

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        out = self.pattern.rows_between(n, m, first, last)
        return power(out, self.pattern.rows(m, m), self.hops)

    def __repr__(self) -> str:
        return f"{written(self.pattern, 4)}.power({self.hops})"
