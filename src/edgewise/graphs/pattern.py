"""The algebra of patterns: | & - ~ .T shift restrict compose power."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import LARGEST, shown, whole
from edgewise.graphs.errors import BadSize, NotAPattern, PatternTooDeep
from edgewise.graphs.pairs import Pairs
from edgewise.graphs.sizes import sizes
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
    folded,
    pieces,
    power,
    residue_order,
    rows_of_keys,
    rows_of_pieces,
    transposed,
    with_pairs,
)
from edgewise.layouts.ragged import pointer

Span = tuple[int, int | None]
DEEPEST, MOST_PARTS = 100, 100_000
ALONE = 1 << 14
GROUP = 64  # Python reads no expression of a thousand operators in a row


class ByHead:
    """What has a pattern for each head: an operator with a pattern before it is its own."""


class Pattern(Pairs):
    """A set of pairs that combines with others; `contains`, `rows` and the rest say what it is."""

    def __or__(self, other: "Pattern") -> "Pattern":
        return NotImplemented if isinstance(other, ByHead) else several(union, self, other)

    def __and__(self, other: "Pattern") -> "Pattern":
        return NotImplemented if isinstance(other, ByHead) else several(intersection, self, other)

    def __sub__(self, other: "Pattern") -> "Pattern":
        if isinstance(other, ByHead):
            return NotImplemented
        if isinstance(self, difference):
            return difference(self.left, self.right | other)
        return difference(self, pattern_of(other))

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
        by, along = signed(rows, "rows"), signed(rows if keys is None else keys, "keys")
        if isinstance(self, shifted) and self.by * by >= 0 and self.keys * along >= 0:
            return shifted(self.pattern, self.by + by, self.keys + along)
        return shifted(self, by, along)

    def restrict(self, *, queries: Span = (0, None), keys: Span = (0, None)) -> "Pattern":
        """{(i, j) ∈ self : i in queries, j in keys}; ranges (first, last + 1)."""
        return restricted(self, queries=queries, keys=keys)

    def compose(self, other: "Pattern") -> "Pattern":
        """{(i, k) : (i, j) ∈ self and (j, k) ∈ other for some j}: two hops."""
        return composition(self, pattern_of(other))

    def power(self, hops: int) -> "Pattern":
        """What is reached in exactly `hops` hops."""
        return self if whole(hops, "hops", 1) == 1 else powered(self, hops)

    def parts(self) -> tuple["Pattern", ...]:
        """Disjoint patterns whose union is this one: a union is cut, earlier members first."""
        members = self.members if isinstance(self, union) else (self,)
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


class Expression(Pattern):
    """A pattern made of others, not too many and not too deep to be worked out."""

    def __post_init__(self) -> None:
        inside = _inside(self)
        depth = 1 + max(part.depth for part in inside)
        size = 1 + sum(part.size for part in inside)
        if depth > DEEPEST or size > MOST_PARTS:
            most = f"{DEEPEST} operators deep" if depth > DEEPEST else f"{MOST_PARTS:,} parts large"
            raise PatternTooDeep(
                f"the expression is more than {most}",
                caller(),
                "any number of patterns may be joined by `|` or `&`; hops are `power(k)`",
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "size", size)

    @property
    def is_arithmetic(self) -> bool:
        return all(part.is_arithmetic for part in _inside(self))

    def form(self, n: int, m: int) -> Rows:
        return self.stretch(n, m, 0, n)


@dataclass(frozen=True, repr=False)
class Several(Expression):
    """Two or more patterns joined by one sign, which is associative."""

    members: tuple[Pattern, ...]

    sign: ClassVar[str]
    keep: ClassVar[Any]

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        if (first, last) == (0, n):
            return folded(n, m, [one.pieces(n, m) for one in self.members], self.keep)
        several = [one.rows_between(n, m, first, last).pieces() for one in self.members]
        return folded(last - first, m, several, self.keep)

    def __repr__(self) -> str:
        parts = [written(member, self.binding + 1) for member in self.members]
        sign = f" {self.sign} "
        while len(parts) > GROUP:
            groups = [parts[k : k + GROUP] for k in range(0, len(parts), GROUP)]
            parts = [f"({sign.join(group)})" if len(group) > 1 else group[0] for group in groups]
        return sign.join(parts)


class union(Several):
    """{(i, j) : (i, j) ∈ one of the members}."""

    sign, binding, keep = "|", 0, OR

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        parts = self._calm_and_loose(n, m, first, last)
        if parts is None:
            return super().stretch(n, m, first, last)
        calm, rest = (one.rows_between(n, m, first, last) for one in parts)
        if (calm.step > 1).any():
            return super().stretch(n, m, first, last)
        return with_pairs(calm, *rest.edges().numpy())

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sizes(n, m)
        parts = self._calm_and_loose(n, m, 0, n)
        return super().count(n, m) if parts is None else sum(one.count(n, m) for one in parts)

    def _calm_and_loose(
        self, n: int, m: int, first: int, last: int
    ) -> tuple[Pattern, Pattern] | None:
        """The members that arithmetic can say, and what the one that is scattered adds to them."""
        loose = [one for one in self.members if _is_loose(one, n, m, first, last)]
        others = tuple(one for one in self.members if one not in loose)
        if len(loose) != 1 or not all(one.is_arithmetic for one in others):
            return None
        calm = union(others) if len(others) > 1 else others[0]
        return calm, loose[0] - calm

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = self.members[0].holds(i, j, n, m)
        for member in self.members[1:]:
            out = out | member.holds(i, j, n, m)
        return out


class intersection(Several):
    """{(i, j) : (i, j) ∈ each of the members}."""

    sign, binding, keep = "&", 1, AND

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = self.members[0].holds(i, j, n, m)
        for member in self.members[1:]:
            out = out & member.holds(i, j, n, m)
        return out


@dataclass(frozen=True, repr=False)
class difference(Expression):
    """{(i, j) : (i, j) ∈ left and not (i, j) ∈ right}."""

    left: Pattern
    right: Pattern
    binding = 2

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        left = self.left.rows_between(n, m, first, last)
        if self.right.is_arithmetic and left.is_scattered:  # pair by pair is quicker
            i, j = left.edges().numpy()
            kept = ~_held(self.right, i + first, j, n, m)
            ptr = pointer(np.bincount(i[kept], minlength=last - first))
            return rows_of_keys(last - first, m, ptr, j[kept])
        right = self.right.rows_between(n, m, first, last)
        return combine(last - first, m, left.pieces(), right.pieces(), MINUS)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.left.holds(i, j, n, m) & ~self.right.holds(i, j, n, m)

    def __repr__(self) -> str:
        return f"{written(self.left, self.binding)} - {written(self.right, self.binding + 1)}"


@dataclass(frozen=True, repr=False)
class complement(Expression):
    """{(i, j) : not (i, j) ∈ pattern}."""

    pattern: Pattern
    binding = 3

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        inner = self.pattern.rows_between(n, m, first, last)
        return combine(last - first, m, inner.pieces(), NOTHING, NOT)

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sizes(n, m)
        return n * m - self.pattern.count(n, m)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return ~self.pattern.holds(i, j, n, m)

    def __repr__(self) -> str:
        return "~" + written(self.pattern, self.binding)


@dataclass(frozen=True, repr=False)
class transpose(Expression):
    """{(j, i) : (i, j) ∈ pattern}."""

    pattern: Pattern

    def form(self, n: int, m: int) -> Rows:
        return transposed(self.pattern.rows(m, n))

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sizes(n, m)
        return self.pattern.count(m, n)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.pattern.holds(j, i, m, n)

    def __repr__(self) -> str:
        return written(self.pattern, 4) + ".T"


@dataclass(frozen=True, repr=False)
class shifted(Expression):
    """{(i + by, j + keys) : (i, j) ∈ pattern}, where pattern has n - by queries, m - keys keys."""

    pattern: Pattern
    by: int
    keys: int

    def __post_init__(self) -> None:
        super().__post_init__()
        signed(self.by, "rows")
        signed(self.keys, "keys")

    def form(self, n: int, m: int) -> Rows:
        high, wide = max(n - self.by, 0), max(m - self.keys, 0)
        first, down = max(-self.by, 0), max(self.by, 0)
        p = self.pattern.rows_between(high, wide, min(first, high), high).pieces()
        rows, slopes = (p.top + down, p.bottom + down), (p.dstart, p.dstop)
        start, stop = p.start + self.keys, p.stop + self.keys
        return rows_of_pieces(n, m, pieces(rows, start, stop, slope=slopes, step=p.step))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        high, wide = max(n - self.by, 0), max(m - self.keys, 0)
        if not high or not wide:
            return torch.zeros_like(i + j, dtype=torch.bool)
        if not self.is_arithmetic:  # of its rows only those that are left are worked out
            return super().holds(i, j, n, m)
        a, b = i - self.by, j - self.keys
        inside = self.pattern.holds(a.clamp(0, high - 1), b.clamp(0, wide - 1), high, wide)
        return (a >= 0) & (b >= 0) & inside

    def __repr__(self) -> str:
        by = repr(self.by) if self.by == self.keys else f"{self.by}, {self.keys}"
        return f"{written(self.pattern, 4)}.shift({by})"


@dataclass(frozen=True, repr=False)
class restricted(Expression):
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
                    f"`{name}` must be a range (first, last + 1), got {shown(span)}",
                    caller(),
                    f"write `{name}=(0, 8)`, or `{name}=(8, None)` for all from 8 on",
                )
            high = None if span[1] is None else whole(span[1], name)
            object.__setattr__(self, name, (whole(span[0], name), high))

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        (top, bottom), (start, stop) = self.queries, self.keys
        rows = (top - first, (n if bottom is None else bottom) - first)
        box = rows_of_pieces(last - first, m, pieces(rows, start, m if stop is None else stop))
        inner = self.pattern.rows_between(n, m, first, last)
        return combine(last - first, m, inner.pieces(), box.pieces(), AND)

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


def several(kind: type[Several], first: Pattern, other: Any) -> Pattern:
    """The two joined, members of the same kind as members of one, none of them twice."""
    left = first.members if isinstance(first, kind) else (first,)
    right = pattern_of(other)
    more = right.members if isinstance(right, kind) else (right,)
    if len(more) > 1:
        members = tuple(dict.fromkeys(left + more))
    else:
        members = left if right in left else left + more
    return kind(members) if len(members) > 1 else members[0]


def written(pattern: Pairs, binding: int) -> str:
    """The written form, in parentheses where it holds together less tightly than `binding`."""
    return f"({pattern!r})" if pattern.binding < binding else repr(pattern)


def signed(value: Any, name: str) -> int:
    return whole(value, name, -LARGEST)


def pattern_of(other: Any) -> Pattern:
    """`other`, if it is a pattern."""
    if not isinstance(other, Pattern):
        raise NotAPattern(
            f"expected a pattern, got {shown(other)}",
            caller(),
            "write one of `edgewise.graphs`, such as `window(3)`; heads combine one by one",
        )
    return other


def _is_loose(pattern: Pattern, n: int, m: int, first: int, last: int) -> bool:
    """Whether its rows are scattered, which takes many pieces."""
    short = type(pattern).pieces is not Pairs.pieces and (first, last) == (0, n)
    if short and 2 * len(pattern.pieces(n, m)) < n:
        return False
    return pattern.rows_between(n, m, first, last).is_scattered


def _held(pattern: Pattern, i: np.ndarray, j: np.ndarray, n: int, m: int) -> np.ndarray:
    """`holds`, for so few pairs at a time that torch starts no threads: that takes longer."""
    pairs = zip(*(torch.from_numpy(x).split(ALONE) for x in (i, j)), strict=True)
    return np.concatenate([pattern.holds(a, b, n, m).numpy() for a, b in pairs])


def _inside(pattern: Pattern) -> list[Pattern]:
    """The patterns that are fields of one, or members of a field."""
    out: list[Pattern] = []
    for name in type(pattern).__dataclass_fields__:  # type: ignore[attr-defined]
        field = getattr(pattern, name)
        members = field if isinstance(field, tuple) else (field,)
        out += [member for member in members if isinstance(member, Pattern)]
    return out
