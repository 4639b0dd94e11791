"""Comparisons as intervals: `time(I, A), time(J, B), leq(B, A)` are the keys up to some rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edgewise.graphs import Pattern, causal, window
from edgewise.graphs.algebra import difference, intersection, transpose, union
from edgewise.ground.index import STRINGS
from edgewise.ground.masks.leaves import Interval, Leaf
from edgewise.ground.masks.sides import Pairs, attributes_in, equal, shown
from edgewise.ground.masks.split import Sides
from edgewise.ground.masks.tokens import Attributes, extremes
from edgewise.language import nodes
from edgewise.layouts.ragged import Ints, pointer
from edgewise.plan.mask import Condition

MIRRORED = {"leq": "geq", "lt": "gt", "geq": "leq", "gt": "lt", "eq": "eq"}


@dataclass
class RangeEnd:
    """variable + offset + sign · more."""

    variable: str
    offset: int
    more: str | None = None
    sign: int = 0

    def __call__(self, found: Attributes) -> Ints:
        total = found.columns[self.variable] + self.offset
        return total if self.more is None else total + self.sign * found.columns[self.more]


@dataclass
class Bounds:
    """All lows ≤ value ≤ all highs, which are of the query."""

    value: str
    lows: list[RangeEnd] = field(default_factory=list)
    highs: list[RangeEnd] = field(default_factory=list)
    least: int = -STRINGS  # of the integers that arithmetic takes
    positions: frozenset[str] = frozenset()  # variables that are integers anyway

    def compare(self, name: str, bound: RangeEnd) -> None:
        """value ≤ bound, and so on."""
        if name in ("leq", "lt", "eq"):
            self.highs.append(replace(bound, offset=bound.offset - (name == "lt")))
        if name in ("geq", "gt", "eq"):
            self.lows.append(replace(bound, offset=bound.offset + (name == "gt")))


def intervals(sides: Sides, pairs: Pairs) -> list[Leaf] | None:
    """The leaves of sides whose tests bound one value of the key by those of the query, or the
    other way round; None if they do not."""
    found = _bounded(sides, pairs, turned=False)
    return _bounded(sides, pairs, turned=True) if found is None else found


def _bounded(sides: Sides, pairs: Pairs, *, turned: bool) -> list[Leaf] | None:
    query, key = (sides.key, sides.query) if turned else (sides.query, sides.key)
    of_query, of_key = pairs.of_query, pairs.of_key
    of_query, of_key = (of_key, of_query) if turned else (of_query, of_key)
    names = (pairs.key, pairs.query) if turned else (pairs.query, pairs.key)
    mine = attributes_in(sides, query, names[0])
    others = attributes_in(sides, key, names[1])
    bounds = Bounds(others[0], positions=frozenset(names)) if len(others) == 1 else None
    tests, outside = _without_negation(sides.tests)
    if bounds is None or not _add_tests(bounds, tests, set(mine)):
        return None
    every = of_query(query, (*sides.shared, *mine)), of_key(key, (*sides.shared, *others))
    left, right = (
        side.integers(own, bounds.least) for side, own in zip(every, (mine, others), strict=True)
    )
    if outside:
        dropped = any(
            len(a.token) < len(b.token) for a, b in zip((left, right), every, strict=True)
        )
        if dropped or not right.functional:  # of other values a negated pattern holds
            return None
    elif not right.functional and not sides.shared and bool(bounds.lows) != bool(bounds.highs):
        right = extremes(right, bounds.value, largest=bool(bounds.lows))
    if not right.functional or (sides.shared and not left.functional):
        return None
    name = shown((*sides.query, *sides.key, *sides.tests))
    found: list[Leaf] = [replace(_interval(name, left, right, bounds, outside), turned=turned)]
    if sides.shared:
        ends = (right, left) if turned else (left, right)
        found.insert(0, equal(name, *ends, sides.shared))
    return found


def _without_negation(tests: Sequence[Condition]) -> tuple[Sequence[Condition], bool]:
    """A negated pattern as what must not hold; other tests as they are."""
    match tests:
        case (nodes.PatternAtom(negated=True) as test,):
            return (replace(test, negated=False),), True
    return tests, False


def _interval(
    name: str, left: Attributes, right: Attributes, bounds: Bounds, outside: bool
) -> Interval:
    """The ranks within the bounds of each query; `outside`, all others."""
    values, rank = np.unique(right.columns[bounds.value], return_inverse=True)
    start = np.zeros(len(left.token), np.int64)
    stop = np.full(len(left.token), len(values))
    for bound in bounds.lows:
        start = np.maximum(start, np.searchsorted(values, bound(left)))
    for bound in bounds.highs:
        stop = np.minimum(stop, np.searchsorted(values, bound(left), side="right"))
    token = left.token
    if outside:
        token = np.concatenate([token, token])
        above = np.maximum(start, stop), np.full_like(stop, len(values))
        start, stop = (
            np.concatenate([np.zeros_like(start), above[0]]),
            np.concatenate([start, above[1]]),
        )
    return interval(name, left.count, (token, start, stop), right.by_token(rank.ravel()))


def interval(name: str, n: int, runs: tuple[Ints, Ints, Ints], rank: Ints) -> Interval:
    """From (query, start, stop) in any order, empty or overlapping."""
    some = runs[1] < runs[2]
    query, start, stop = (x[some] for x in runs)
    if not (query[1:] > query[:-1]).all():
        query, start, stop = _disjoint(query, start, stop)
    return Interval(name, pointer(np.bincount(query, minlength=n)), start, stop, rank)


def _disjoint(query: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints, Ints]:
    """Overlapping runs of a query merged."""
    order = np.lexsort((start, query))
    query, start, stop = query[order], start[order], stop[order]
    span = int(stop.max(initial=0)) + 1
    reach = np.maximum.accumulate(query * span + stop)
    opens = np.ones(len(query), bool)
    opens[1:] = query[1:] * span + start[1:] > reach[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(query)) - 1 if len(first) else first
    return query[first], start[first], reach[last] - query[first] * span


Differences = dict[str, tuple[str, int]]  # D → a variable and ±1: value = variable ± D


def _add_tests(found: Bounds, tests: Sequence[Condition], mine: set[str]) -> bool:
    """Add what tests say; False if one is something else."""
    differences: Differences = {}
    subtracted = [t for t in tests if isinstance(t, nodes.SpecialAtom) and t.name == "sub"]
    return all(_difference(one, found, differences, mine) for one in subtracted) and all(
        _comparison(test, found, differences, mine) for test in tests if test not in subtracted
    )


def _difference(
    test: nodes.SpecialAtom, found: Bounds, differences: Differences, mine: set[str]
) -> bool:
    """`sub(a, b, D)`, of natural numbers with D ≥ 0, or with a number for D."""
    a, b, last = (t.name if isinstance(t, nodes.Variable) else t for t in test.terms)
    if test.negated or {a, b} - mine != {found.value} or not isinstance(a, str):
        return False
    variable, sign = (str(b), 1) if a == found.value else (a, -1)
    if variable not in mine:
        return False
    found.least = 0
    if isinstance(last, str) and last not in differences and last not in mine | {found.value}:
        differences[last] = (variable, sign)
        found.compare("geq" if sign > 0 else "leq", RangeEnd(variable, 0))
        return True
    if not isinstance(test.terms[2], int):
        return False
    found.compare("eq", RangeEnd(variable, sign * test.terms[2]))
    return test.terms[2] >= 0


def _band(test: nodes.PatternAtom, found: Bounds, mine: set[str]) -> bool:
    """Patterns of natural numbers a and b that say how far apart they are."""
    ends = difference_in(test.pattern)
    a, b = (t.name if isinstance(t, nodes.Variable) else "" for t in test.terms[-2:])
    if ends is None or test.negated or {a, b} - mine != {found.value} or not {a, b} & mine:
        return False
    found.least = 0
    low, high = ends if a == found.value else (-ends[1], -ends[0])
    variable = b if a == found.value else a
    found.lows += [RangeEnd(variable, int(low))] if low > -math.inf else []
    found.highs += [RangeEnd(variable, int(high))] if high < math.inf else []
    return True


def difference_in(pattern: Pattern) -> tuple[float, float] | None:
    """The interval of i − j that a pattern is; None if it is something else.

    >>> from edgewise.graphs import causal, window
    >>> difference_in(causal() & window(3)), difference_in(causal() - window(0))
    ((0, 3), (1, inf))
    >>> difference_in(causal().T | window(3))
    (-inf, 3)
    """
    match pattern:
        case causal():
            return 0, math.inf
        case window():
            return -pattern.radius, pattern.radius
        case transpose():
            inner = difference_in(pattern.pattern)
            return None if inner is None else (-inner[1], -inner[0])
        case intersection():
            parts = [difference_in(member) for member in pattern.members]
            if None in parts:
                return None
            return max(p[0] for p in parts if p), min(p[1] for p in parts if p)
        case union():
            return _joint([difference_in(member) for member in pattern.members])
        case difference():
            left, right = difference_in(pattern.left), difference_in(pattern.right)
            if left is None or right is None:
                return None
            if right[0] <= left[0] <= right[1]:
                return right[1] + 1, left[1]
            return (left[0], right[0] - 1) if right[0] <= left[1] <= right[1] else None
    return None


def _joint(parts: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    """Intervals as one; None where there are gaps between them."""
    if None in parts:
        return None
    first, *others = sorted(part for part in parts if part is not None)
    for low, high in others:
        if low > first[1] + 1:
            return None
        first = first[0], max(first[1], high)
    return first


def _comparison(test: Condition, found: Bounds, differences: Differences, mine: set[str]) -> bool:
    if isinstance(test, nodes.PatternAtom):
        return _band(test, found, mine)
    if not isinstance(test, nodes.SpecialAtom) or test.negated or test.name not in MIRRORED:
        return False
    x, y = test.terms
    for this, other, kind in ((x, y, test.name), (y, x, MIRRORED[test.name])):
        if not isinstance(this, nodes.Variable):
            continue
        of_query = other.name if isinstance(other, nodes.Variable) else None
        if this.name in differences and (isinstance(other, int) or of_query in mine):
            variable, sign = differences[this.name]
            offset = sign * other if isinstance(other, int) else 0
            bound = RangeEnd(variable, offset, of_query, sign)
            found.compare(kind if sign > 0 else MIRRORED[kind], bound)
            return True
        strings = kind == "eq" and not {found.value, of_query} <= found.positions  # equal too
        if this.name == found.value and of_query in mine and not strings:
            assert of_query is not None
            found.compare(kind, RangeEnd(of_query, 0))
            return True
    return False
