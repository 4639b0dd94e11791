"""What a condition is on data: classes of tokens, intervals, runs of keys, or a test of pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Bools, Ints

Test = Callable[[Ints, Ints], Bools]


@dataclass(frozen=True, eq=False)
class Equal:
    """Pairs whose query and key have the same class; -1 is none."""

    name: str
    query: Ints
    key: Ints

    @property
    def is_empty(self) -> bool:
        """Whether no query, or no key, has a class."""
        return int(min(self.query.max(initial=-1), self.key.max(initial=-1))) < 0


@dataclass(frozen=True, eq=False)
class Related:
    """Pairs whose classes are related: class u of queries with `other[ptr[u]:ptr[u+1]]`."""

    name: str
    query: Ints
    key: Ints
    ptr: Ints
    other: Ints


@dataclass(frozen=True, eq=False)
class Interval:
    """Pairs whose key has a rank between two: start[k] ≤ rank < stop[k] for some k of the query,
    ptr[i] ≤ k < ptr[i+1], which are disjoint and ascending. -1 is none. If `turned`, the rank is
    that of the query, and the intervals are those of the key."""

    name: str
    ptr: Ints
    start: Ints
    stop: Ints
    rank: Ints
    turned: bool = False


@dataclass(frozen=True, eq=False)
class Runs:
    """Pairs in rows of tokens as they are: a pattern, or a list; `negated`, all others."""

    name: str
    rows: Rows
    negated: bool = False

    @property
    def is_list(self) -> bool:
        """Whether runs are so short that pairs are as good."""
        return self.rows.count() <= 4 * len(self.rows.start)


@dataclass(frozen=True, eq=False)
class Tested:
    """Pairs that meet a test of both tokens, evaluated where other conditions leave pairs."""

    name: str
    holds: Test


Leaf = Equal | Related | Interval | Runs | Tested
