"""The algebra of patterns: | & - ~ .T shift restrict compose power."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import LARGEST, integer, sequence_lengths, short_repr
from edgewise.graphs.errors import BadSize, NotAPattern, PatternTooDeep
from edgewise.graphs.pattern import Pattern, ReflectedOperand, Span
from edgewise.layouts import (
    AND,
    MINUS,
    NOT,
    NOTHING,
    OR,
    Rows,
    Trapezoids,
    combine,
    composed,
    fold,
    power,
    rows_of_keys,
    rows_of_trapezoids,
    transposed,
    trapezoids,
    with_pairs,
)
from edgewise.layouts.ragged import pointer

DEEPEST, MOST_PARTS = 100, 100_000
CHUNK = 1 << 14
GROUP = 64  # Python's parser refuses a thousand operators in a row


class CompositePattern(Pattern):
    """A pattern made of others, of bounded size and depth."""

    def __post_init__(self) -> None:
        operands = _operands(self)
        depth = 1 + max(part.depth for part in operands)
        total = 1 + sum(part.total for part in operands)
        if depth > DEEPEST or total > MOST_PARTS:
            most = f"{DEEPEST} operators deep" if depth > DEEPEST else f"{MOST_PARTS:,} parts large"
            raise PatternTooDeep(
                f"the expression is more than {most}",
                caller(),
                "any number of patterns may be joined by `|` or `&`; hops are `power(k)`",
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "total", total)

    @property
    def is_arithmetic(self) -> bool:
        return all(part.is_arithmetic for part in _operands(self))


@dataclass(frozen=True, repr=False)
class Associative(CompositePattern):
    """Two or more patterns joined by one associative operator."""

    members: tuple[Pattern, ...]

    sign: ClassVar[str]
    truth_table: ClassVar[Any]

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        if (first, last) == (0, n):
            return fold(n, m, [one.trapezoids(n, m) for one in self.members], self.truth_table)
        several = [one.rows_between(n, m, first, last).trapezoids() for one in self.members]
        return fold(last - first, m, several, self.truth_table)

    def __repr__(self) -> str:
        parts = [parenthesised(member, self.precedence + 1) for member in self.members]
        sign = f" {self.sign} "
        while len(parts) > GROUP:
            groups = [parts[k : k + GROUP] for k in range(0, len(parts), GROUP)]
            parts = [f"({sign.join(group)})" if len(group) > 1 else group[0] for group in groups]
        return sign.join(parts)


class union(Associative):
    """{(i, j) : (i, j) ∈ one of the members}."""

    sign, precedence, truth_table = "|", 0, OR

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        parts = self._regular_and_scattered(n, m, first, last)
        if parts is None:
            return super().compute_rows_between(n, m, first, last)
        regular, rest = (one.rows_between(n, m, first, last) for one in parts)
        if (regular.step > 1).any():
            return super().compute_rows_between(n, m, first, last)
        return with_pairs(regular, *rest.edges().numpy())

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sequence_lengths(n, m)
        parts = self._regular_and_scattered(n, m, 0, n)
        return super().count(n, m) if parts is None else sum(one.count(n, m) for one in parts)

    def _regular_and_scattered(
        self, n: int, m: int, first: int, last: int
    ) -> tuple[Pattern, Pattern] | None:
        """The arithmetic members, and what the one scattered member adds to them."""
        scattered = [one for one in self.members if _is_scattered(one, n, m, first, last)]
        others = tuple(one for one in self.members if one not in scattered)
        if len(scattered) != 1 or not all(one.is_arithmetic for one in others):
            return None
        regular = union(others) if len(others) > 1 else others[0]
        return regular, scattered[0] - regular

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = self.members[0].mask(i, j, n, m)
        for member in self.members[1:]:
            out = out | member.mask(i, j, n, m)
        return out


class intersection(Associative):
    """{(i, j) : (i, j) ∈ each of the members}."""

    sign, precedence, truth_table = "&", 1, AND

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = self.members[0].mask(i, j, n, m)
        for member in self.members[1:]:
            out = out & member.mask(i, j, n, m)
        return out


@dataclass(frozen=True, repr=False)
class difference(CompositePattern):
    """{(i, j) : (i, j) ∈ left and not (i, j) ∈ right}."""

    left: Pattern
    right: Pattern
    precedence = 2

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        left = self.left.rows_between(n, m, first, last)
        if self.right.is_arithmetic and left.is_scattered:  # testing pair by pair is faster
            i, j = left.edges().numpy()
            rest = ~_mask_in_chunks(self.right, i + first, j, n, m)
            ptr = pointer(np.bincount(i[rest], minlength=last - first))
            return rows_of_keys(last - first, m, ptr, j[rest])
        right = self.right.rows_between(n, m, first, last)
        return combine(last - first, m, left.trapezoids(), right.trapezoids(), MINUS)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.left.mask(i, j, n, m) & ~self.right.mask(i, j, n, m)

    def __repr__(self) -> str:
        left = parenthesised(self.left, self.precedence)
        return f"{left} - {parenthesised(self.right, self.precedence + 1)}"


@dataclass(frozen=True, repr=False)
class complement(CompositePattern):
    """{(i, j) : not (i, j) ∈ pattern}."""

    pattern: Pattern
    precedence = 3

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        inner = self.pattern.rows_between(n, m, first, last)
        return combine(last - first, m, inner.trapezoids(), NOTHING, NOT)

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sequence_lengths(n, m)
        return n * m - self.pattern.count(n, m)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return ~self.pattern.mask(i, j, n, m)

    def __repr__(self) -> str:
        return "~" + parenthesised(self.pattern, self.precedence)


@dataclass(frozen=True, repr=False)
class transpose(CompositePattern):
    """{(j, i) : (i, j) ∈ pattern}."""

    pattern: Pattern

    @property
    def T(self) -> Pattern:
        return self.pattern

    def compute_rows(self, n: int, m: int) -> Rows:
        return transposed(self.pattern.rows(m, n))

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sequence_lengths(n, m)
        return self.pattern.count(m, n)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.pattern.mask(j, i, m, n)

    def __repr__(self) -> str:
        return parenthesised(self.pattern, 4) + ".T"


@dataclass(frozen=True, repr=False)
class shifted(CompositePattern):
    """{(i + by, j + keys) : (i, j) ∈ pattern}, where pattern has n - by queries, m - keys keys."""

    pattern: Pattern
    by: int
    keys: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "by", integer(self.by, "rows", -LARGEST))
        object.__setattr__(self, "keys", integer(self.keys, "keys", -LARGEST))

    def shift(self, rows: int, keys: int | None = None) -> Pattern:
        by = integer(rows, "rows", -LARGEST)
        along = integer(rows if keys is None else keys, "keys", -LARGEST)
        if self.by * by >= 0 and self.keys * along >= 0:  # further the same way
            return shifted(self.pattern, self.by + by, self.keys + along)
        return shifted(self, by, along)

    def compute_rows(self, n: int, m: int) -> Rows:
        high, wide = max(n - self.by, 0), max(m - self.keys, 0)
        first, down = max(-self.by, 0), max(self.by, 0)
        p = self.pattern.rows_between(high, wide, min(first, high), high).trapezoids()
        rows, slopes = (p.top + down, p.bottom + down), (p.dstart, p.dstop)
        start, stop = p.start + self.keys, p.stop + self.keys
        return rows_of_trapezoids(n, m, trapezoids(rows, start, stop, slope=slopes, step=p.step))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        high, wide = max(n - self.by, 0), max(m - self.keys, 0)
        if not high or not wide:
            return torch.zeros_like(i + j, dtype=torch.bool)
        if not self.is_arithmetic:  # compute only the rows that remain
            return super().mask(i, j, n, m)
        a, b = i - self.by, j - self.keys
        inside = self.pattern.mask(a.clamp(0, high - 1), b.clamp(0, wide - 1), high, wide)
        return (a >= 0) & (b >= 0) & inside

    def __repr__(self) -> str:
        by = repr(self.by) if self.by == self.keys else f"{self.by}, {self.keys}"
        return f"{parenthesised(self.pattern, 4)}.shift({by})"


@dataclass(frozen=True, repr=False)
class restricted(CompositePattern):
    """{(i, j) ∈ pattern : queries[0] ≤ i < queries[1], keys[0] ≤ j < keys[1]}."""

    pattern: Pattern
    queries: Span = (0, None)
    keys: Span = (0, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("queries", "keys"):
            span = getattr(self, name)
            if not isinstance(span, tuple | list) or len(span) != 2:
                raise BadSize(
                    f"`{name}` must be a range (first, last + 1), got {short_repr(span)}",
                    caller(),
                    f"write `{name}=(0, 8)`, or `{name}=(8, None)` for all from 8 on",
                )
            high = None if span[1] is None else integer(span[1], name)
            object.__setattr__(self, name, (integer(span[0], name), high))

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        (top, bottom), (start, stop) = self.queries, self.keys
        rows = (top - first, (n if bottom is None else bottom) - first)
        box = trapezoids(rows, start, m if stop is None else stop)
        inner = self.pattern.rows_between(n, m, first, last)
        clipped = rows_of_trapezoids(last - first, m, box).trapezoids()
        return combine(last - first, m, inner.trapezoids(), clipped, AND)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = self.pattern.mask(i, j, n, m)
        for value, (low, high) in ((i, self.queries), (j, self.keys)):
            out = out & (value >= low)
            out = out if high is None else out & (value < high)
        return out

    def __repr__(self) -> str:
        named = (("queries", self.queries), ("keys", self.keys))
        spans = ", ".join(f"{name}={span}" for name, span in named if span != (0, None))
        return f"{parenthesised(self.pattern, 4)}.restrict({spans})"


@dataclass(frozen=True, repr=False)
class composition(CompositePattern):
    """{(i, k) : (i, j) ∈ first and (j, k) ∈ second for some j}; j ranges over the m keys."""

    first: Pattern
    second: Pattern
    is_arithmetic = False

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        return composed(self.first.rows_between(n, m, first, last), self.second.rows(m, m))

    def __repr__(self) -> str:
        return f"{parenthesised(self.first, 4)}.compose({self.second!r})"


@dataclass(frozen=True, repr=False)
class powered(CompositePattern):
    """pattern.compose(pattern)..., `hops` factors; by squaring, up to a fixed point."""

    pattern: Pattern
    hops: int
    is_arithmetic = False

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        out = self.pattern.rows_between(n, m, first, last)
        return power(out, self.pattern.rows(m, m), self.hops)

    def __repr__(self) -> str:
        return f"{parenthesised(self.pattern, 4)}.power({self.hops})"


class Derived(Pattern):
    """A pattern defined as an expression of others."""

    def definition(self) -> Pattern:
        raise NotImplementedError

    @property
    def is_arithmetic(self) -> bool:
        return self.definition().is_arithmetic

    def compute_rows(self, n: int, m: int) -> Rows:
        return self.definition().rows(n, m)

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        return self.definition().trapezoids(n, m)

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        return self.definition().rows_between(n, m, first, last)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.definition().mask(i, j, n, m)


def associated(kind: type[Associative], first: Pattern, other: Any) -> Pattern:
    """`first` and `other` under one operator: nested ones are flattened, duplicates dropped."""
    if isinstance(other, ReflectedOperand):
        return NotImplemented
    left = first.members if isinstance(first, kind) else (first,)
    right = pattern_of(other)
    more = right.members if isinstance(right, kind) else (right,)
    if len(more) > 1:
        members = tuple(dict.fromkeys(left + more))
    else:
        members = left if right in left else left + more
    return kind(members) if len(members) > 1 else members[0]


def parenthesised(pattern: Pattern, precedence: int) -> str:
    """The repr, in parentheses where its operator binds less tightly than `precedence`."""
    return f"({pattern!r})" if pattern.precedence < precedence else repr(pattern)


def pattern_of(other: Any) -> Pattern:
    """`other`, if it is a pattern."""
    if not isinstance(other, Pattern):
        what = short_repr(other)
        raise NotAPattern(f"expected a pattern, got {what}", caller(), pattern_instead(other))
    return other


def pattern_instead(graph: object) -> str:
    """How to write what was given instead of a pattern."""
    if isinstance(graph, str):
        return f"read it: `graphs.parse({graph!r})`"
    if isinstance(graph, type) and issubclass(graph, Pattern):
        return f"call it, with its sizes in the parentheses: `{graph.__name__}(...)`"
    if hasattr(graph, "mask_mod"):
        return "of its `mask_mod`: `graphs.where(lambda i, j: mask_mod(0, 0, i, j))`"
    if callable(graph):
        return "of a function of positions, write `graphs.where(lambda i, j: ...)`"
    if hasattr(graph, "dtype"):
        return "of a mask, write `graphs.from_dense(mask)`; of pairs, `graphs.from_edges(pairs)`"
    if isinstance(graph, bool):
        return "of a causal mask, write `causal()`; without a mask, leave it out"
    if isinstance(graph, list | tuple) and all(isinstance(one, Pattern) for one in graph):
        return "of one pattern for each head, write `per_head(a, b)`"
    if isinstance(graph, ReflectedOperand):
        return "heads, samples and layers are combined one by one: `per_head(a & b, c & b)`"
    return "write one of `edgewise.graphs`, such as `window(3)`, or `from_edges(...)`"


def _is_scattered(pattern: Pattern, n: int, m: int, first: int, last: int) -> bool:
    """True if its rows are scattered keys rather than runs."""
    short = type(pattern).trapezoids is not Pattern.trapezoids and (first, last) == (0, n)
    if short and 2 * len(pattern.trapezoids(n, m)) < n:
        return False
    return pattern.rows_between(n, m, first, last).is_scattered


def _mask_in_chunks(pattern: Pattern, i: np.ndarray, j: np.ndarray, n: int, m: int) -> np.ndarray:
    """`mask`, in chunks so small that torch starts no threads, which would take longer."""
    pairs = zip(*(torch.from_numpy(x).split(CHUNK) for x in (i, j)), strict=True)
    return np.concatenate([pattern.mask(a, b, n, m).numpy() for a, b in pairs])


def _operands(pattern: Pattern) -> list[Pattern]:
    """The patterns that are fields of one, or members of a field."""
    out: list[Pattern] = []
    for name in type(pattern).__dataclass_fields__:  # type: ignore[attr-defined]
        field = getattr(pattern, name)
        members = field if isinstance(field, tuple) else (field,)
        out += [member for member in members if isinstance(member, Pattern)]
    return out
