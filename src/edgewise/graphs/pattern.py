"""The algebra of patterns: | & - ~ here, .T shift restrict in `moves`, compose power in `hops`.

Those two stand on this file, and a pattern finds them when they are asked for.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import shown, whole
from edgewise.graphs.errors import NotAPattern, PatternTooDeep
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
    folded,
    residue_order,
    rows_of_keys,
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
        from edgewise.graphs.moves import transpose

        return transpose(self)

    def shift(self, rows: int, keys: int | None = None) -> "Pattern":
        """{(i + rows, j + keys) : (i, j) ∈ self}; the pattern below has n - rows queries.

        A negative `rows` continues a sequence: `causal().shift(-t, 0)` is what a query hears
        after t tokens in a cache.
        """
        from edgewise.graphs.moves import shifted

        return shifted(self, rows, rows if keys is None else keys)

    def restrict(self, *, queries: Span = (0, None), keys: Span = (0, None)) -> "Pattern":
        """{(i, j) ∈ self : i in queries, j in keys}; ranges (first, last + 1)."""
        from edgewise.graphs.moves import restricted

        return restricted(self, queries=queries, keys=keys)

    def compose(self, other: "Pattern") -> "Pattern":
        """{(i, k) : (i, j) ∈ self and (j, k) ∈ other for some j}: two hops."""
        from edgewise.graphs.hops import composition

        return composition(self, pattern_of(other))

    def power(self, hops: int) -> "Pattern":
        """What is reached in exactly `hops` hops."""
        from edgewise.graphs.hops import powered

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
        total = 1 + sum(part.total for part in inside)
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
