"""The algebra of patterns: | & - ~ .T shift restrict compose power."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.errors import NotAPattern, whole
from edgewise.graphs.pairs import Pairs
from edgewise.layouts import (
    AND,
    MINUS,
    NOT,
    NOTHING,
    OR,
    Rows,
    by_residue,
    combine,
    common_step,
    composed,
    pieces,
    residue_order,
    rows_of_pieces,
    transposed,
)

Span = tuple[int, int | None]


class Pattern(Pairs):
    """A set of pairs that combines with others; `contains`, `rows` and the rest say what it is."""

    def __or__(self, other: "Pattern") -> "Pattern":
        return union(self, _pattern(other))

    def __and__(self, other: "Pattern") -> "Pattern":
        return intersection(self, _pattern(other))

    def __sub__(self, other: "Pattern") -> "Pattern":
        return difference(self, _pattern(other))

    def __invert__(self) -> "Pattern":
        return self.pattern if isinstance(self, complement) else complement(self)

    @property
    def T(self) -> "Pattern":
        """{(j, i) : (i, j) ∈ self}."""
        return self.pattern if isinstance(self, transpose) else transpose(self)

    def shift(self, rows: int, keys: int | None = None) -> "Pattern":
        """{(i + rows, j + keys) : (i, j) ∈ self}; the pattern below has n - rows queries.

        A negative `rows` continues a sequence: `causal().shift(-t, 0)` is what a query hears
        after t tokens in a cache.
        """
        return shifted(self, rows, rows if keys is None else keys)

    def restrict(self, *, queries: Span = (0, None), keys: Span = (0, None)) -> "Pattern":
        """{(i, j) ∈ self : i in queries, j in keys}; ranges (first, last + 1)."""
        return restricted(self, queries=queries, keys=keys)

    def compose(self, other: "Pattern") -> "Pattern":
        """{(i, k) : (i, j) ∈ self and (j, k) ∈ other for some j}: two hops."""
        return composition(self, _pattern(other))

    def power(self, hops: int) -> "Pattern":
        """What is reached in exactly `hops` hops."""
        out: Pattern = self
        for _ in range(whole(hops, "hops", 1) - 1):
            out = composition(out, self)
        return out

    def parts(self) -> tuple["Pattern", ...]:
        """Disjoint patterns whose union is this one: a union is cut, earlier members first."""
        members = _members(self)
        out = [members[0]]
        before = members[0]
        for member in members[1:]:
            out.append(member - before)
            before = before | member
        return tuple(out)

    def residues(self, n: int) -> tuple[int, Tensor, Rows]:
        """A step s with i ≡ j (mod s) for all pairs, the order of tokens by residue, and the rows
        in that order: blocks on the diagonal, without steps. s is 1 where there is none better."""
        step = max(common_step(self.rows(n)), 1)
        return step, residue_order(n, step), by_residue(self.rows(n), step)


@dataclass(frozen=True, repr=False)
class _Binary(Pattern):
    left: Pattern
    right: Pattern

    sign: ClassVar[str]

    @property
    def is_arithmetic(self) -> bool:
        return self.left.is_arithmetic and self.right.is_arithmetic

    def __repr__(self) -> str:
        left, right = written(self.left, self.binding), written(self.right, self.binding + 1)
        return f"{left} {self.sign} {right}"


class union(_Binary):
    """{(i, j) : (i, j) ∈ left or (i, j) ∈ right}."""

    sign, binding = "|", 0

    def form(self, n: int, m: int) -> Rows:
        return combine(n, m, self.left.rows(n, m).pieces(), self.right.rows(n, m).pieces(), OR)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.left.holds(i, j, n, m) | self.right.holds(i, j, n, m)


class intersection(_Binary):
    """{(i, j) : (i, j) ∈ left and (i, j) ∈ right}."""

    sign, binding = "&", 1

    def form(self, n: int, m: int) -> Rows:
        return combine(n, m, self.left.rows(n, m).pieces(), self.right.rows(n, m).pieces(), AND)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.left.holds(i, j, n, m) & self.right.holds(i, j, n, m)


class difference(_Binary):
    """{(i, j) : (i, j) ∈ left and not (i, j) ∈ right}."""

    sign, binding = "-", 2

    def form(self, n: int, m: int) -> Rows:
        return combine(n, m, self.left.rows(n, m).pieces(), self.right.rows(n, m).pieces(), MINUS)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.left.holds(i, j, n, m) & ~self.right.holds(i, j, n, m)


@dataclass(frozen=True, repr=False)
class complement(Pattern):
    """{(i, j) : not (i, j) ∈ pattern}."""

    pattern: Pattern
    binding = 3

    @property
    def is_arithmetic(self) -> bool:
        return self.pattern.is_arithmetic

    def form(self, n: int, m: int) -> Rows:
        return combine(n, m, self.pattern.rows(n, m).pieces(), NOTHING, NOT)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return ~self.pattern.holds(i, j, n, m)

    def __repr__(self) -> str:
        return "~" + written(self.pattern, self.binding)


@dataclass(frozen=True, repr=False)
class transpose(Pattern):
    """{(j, i) : (i, j) ∈ pattern}."""

    pattern: Pattern

    @property
    def is_arithmetic(self) -> bool:
        return self.pattern.is_arithmetic

    def form(self, n: int, m: int) -> Rows:
        return transposed(self.pattern.rows(m, n))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.pattern.holds(j, i, m, n)

    def __repr__(self) -> str:
        return written(self.pattern, 4) + ".T"


@dataclass(frozen=True, repr=False)
class shifted(Pattern):
    """{(i + by, j + keys) : (i, j) ∈ pattern}, where pattern has n - by queries, m - keys keys."""

    pattern: Pattern
    by: int
    keys: int

    @property
    def is_arithmetic(self) -> bool:
        return self.pattern.is_arithmetic

    def form(self, n: int, m: int) -> Rows:
        p = self.pattern.rows(max(n - self.by, 0), max(m - self.keys, 0)).pieces()
        rows = (p.top + self.by, p.bottom + self.by)
        slopes = (p.dstart, p.dstop)
        start, stop = p.start + self.keys, p.stop + self.keys
        return rows_of_pieces(n, m, pieces(rows, start, stop, slope=slopes, step=p.step))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        a, b = i - self.by, j - self.keys
        high, wide = max(n - self.by, 0), max(m - self.keys, 0)
        if not high or not wide:
            return torch.zeros_like(i + j, dtype=torch.bool)
        inside = self.pattern.holds(a.clamp(0, high - 1), b.clamp(0, wide - 1), high, wide)
        return (a >= 0) & (b >= 0) & inside

    def __repr__(self) -> str:
        by = repr(self.by) if self.by == self.keys else f"{self.by}, {self.keys}"
        return f"{written(self.pattern, 4)}.shift({by})"


@dataclass(frozen=True, repr=False)
class restricted(Pattern):
    """{(i, j) ∈ pattern : queries[0] ≤ i < queries[1], keys[0] ≤ j < keys[1]}."""

    pattern: Pattern
    queries: Span = (0, None)
    keys: Span = (0, None)

    def __post_init__(self) -> None:
        for name in ("queries", "keys"):
            low, high = getattr(self, name)
            high = None if high is None else whole(high, name)
            object.__setattr__(self, name, (whole(low, name), high))

    @property
    def is_arithmetic(self) -> bool:
        return self.pattern.is_arithmetic

    def form(self, n: int, m: int) -> Rows:
        (top, bottom), (start, stop) = self.queries, self.keys
        bottom, stop = n if bottom is None else bottom, m if stop is None else stop
        box = pieces((top, bottom), start, stop)
        inner = self.pattern.rows(n, m).pieces()
        return combine(n, m, inner, rows_of_pieces(n, m, box).pieces(), AND)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = self.pattern.holds(i, j, n, m)
        for value, (low, high) in ((i, self.queries), (j, self.keys)):
            out = out & (value >= low)
            out = out if high is None else out & (value < high)
        return out

    def __repr__(self) -> str:
        named = (("queries", self.queries), ("keys", self.keys))
        given = ", ".join(f"{name}={span}" for name, span in named if span != (0, None))
        return f"{written(self.pattern, 4)}.restrict({given})"


@dataclass(frozen=True, repr=False)
class composition(Pattern):
    """{(i, k) : (i, j) ∈ first and (j, k) ∈ second for some j}; j ranges over the m keys."""

    first: Pattern
    second: Pattern

    def form(self, n: int, m: int) -> Rows:
        return composed(self.first.rows(n, m), self.second.rows(m, m))

    def __repr__(self) -> str:
        return f"{written(self.first, 4)}.compose({self.second!r})"


def written(pattern: Pairs, binding: int) -> str:
    """The written form, in parentheses where it holds together less tightly than `binding`."""
    return f"({pattern!r})" if pattern.binding < binding else repr(pattern)


def _members(pattern: Pattern) -> list[Pattern]:
    if isinstance(pattern, union):
        return _members(pattern.left) + _members(pattern.right)
    return [pattern]


def _pattern(other: Any) -> Pattern:
    if not isinstance(other, Pattern):
        raise NotAPattern(
            f"expected a pattern, got {other!r}",
            caller(),
            "write one of `edgewise.graphs`, such as `window(3)`; heads combine one by one",
        )
    return other
