"""A mask as tests of pairs, and of blocks of them: what is dense and has no order is not listed.

Every condition is compared for all pairs of some queries and some keys at once, from a number or
two of each token. Of blocks, the least and the largest of these numbers say which cannot have a
pair, and which have all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgewise.ground.masks.cells import AT_ONCE, Order
from edgewise.ground.masks.leaves import Equal, Interval, Related, Runs, Tested
from edgewise.layouts import Rows
from edgewise.layouts.ragged import Bools, Ints, pointer, ranges

NONE = np.iinfo(np.int32).max
MOST_TABLE = 1 << 24  # pairs of classes in a table
LONG = 64  # pairs for each token: in longer lists blocks are not counted
Bounds = tuple[Bools, Bools]  # of blocks: possible, certain


class PairTest(Protocol):
    """Tests pairs of sorted tokens."""

    def holds(self, first: int, last: int, keys: Ints) -> Bools: ...
    def bounds(self, block: int) -> Bounds: ...


@dataclass(frozen=True, eq=False)
class Extremes:
    """The least and the largest number of each block of tokens, and whether some have none (-1)."""

    least: Ints
    most: Ints
    lacks: Bools

    @staticmethod
    def of(numbers: NDArray[Any], block: int) -> Extremes:
        starts = np.arange(0, len(numbers), block)
        least = np.minimum.reduceat(np.where(numbers < 0, NONE, numbers), starts)
        most = np.maximum.reduceat(numbers, starts)
        return Extremes(least, most, np.minimum.reduceat(numbers, starts) < 0)


def _unknown(n: int, m: int, block: int) -> Bounds:
    shape = (-(-n // block), -(-m // block))
    return np.ones(shape, bool), np.zeros(shape, bool)


class EqualTest:
    """Classes of both ends are equal."""

    def __init__(self, leaf: Equal, order: Order) -> None:
        self.query = leaf.query[order.query].astype(np.int32)
        self.key = leaf.key[order.key].astype(np.int32)

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        query = self.query[first:last]
        found: Bools = np.where(query < 0, -2, query)[:, None] == self.key[keys]
        return found

    def bounds(self, block: int) -> Bounds:
        q, k = Extremes.of(self.query, block), Extremes.of(self.key, block)
        possible = (q.least[:, None] <= k.most) & (k.least <= q.most[:, None])
        alike = (q.least == q.most) & ~q.lacks, (k.least == k.most) & ~k.lacks
        return possible, alike[0][:, None] & alike[1] & (q.least[:, None] == k.least)


class RelatedTest:
    """Classes of both ends are related."""

    def __init__(self, leaf: Related, order: Order) -> None:
        self.leaf = leaf
        self.query, self.key = leaf.query[order.query], leaf.key[order.key]
        self.classes = int(max(leaf.key.max(initial=-1), leaf.other.max(initial=-1))) + 1

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        classes, place = np.unique(self.query[first:last], return_inverse=True)
        related, ptr = np.zeros((len(classes), self.classes + 1), bool), self.leaf.ptr
        for at, one in enumerate(classes):
            if one >= 0:
                related[at, self.leaf.other[ptr[one] : ptr[one + 1]]] = True
        return related[:, self.key[keys]][place.ravel()]  # the last class, which -1 is, has none

    def bounds(self, block: int) -> Bounds:
        q, k = Extremes.of(self.query, block), Extremes.of(self.key, block)
        many = len(self.leaf.ptr) - 1
        possible = (q.most >= 0)[:, None] & (k.most >= 0)
        if many * self.classes > MOST_TABLE:
            return possible, np.zeros_like(possible)
        table = np.zeros((many + 1, self.classes + 1), np.int32)
        table[np.repeat(np.arange(many), np.diff(self.leaf.ptr)) + 1, self.leaf.other + 1] = 1
        table = table.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32)
        top, left = np.minimum(q.least, q.most)[:, None], np.minimum(k.least, k.most)
        top, left = np.maximum(top, 0), np.maximum(left, 0)
        bottom, right = np.maximum(q.most + 1, 0)[:, None], np.maximum(k.most + 1, 0)
        inside = table[bottom, right] - table[top, right] - table[bottom, left] + table[top, left]
        area = (bottom - top) * (right - left)
        return possible & (inside > 0), (inside == area) & ~q.lacks[:, None] & ~k.lacks & possible


class IntervalTest:
    """The rank of the key is in an interval of the query."""

    def __init__(self, leaf: Interval, order: Order) -> None:
        self.rank = leaf.rank[order.key].astype(np.int32)
        count = np.diff(leaf.ptr)[order.query]
        self.ptr = pointer(count)
        which = ranges(leaf.ptr[:-1][order.query], count)
        self.start, self.stop = leaf.start[which], leaf.stop[which]

    @cached_property
    def _one(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first start and the last stop of each query; both 0 if it has no interval."""
        some = self.ptr[1:] > self.ptr[:-1]
        start, stop = (np.zeros(len(some), np.int32) for _ in range(2))
        start[some] = self.start[self.ptr[:-1][some]]
        stop[some] = self.stop[self.ptr[1:][some] - 1]
        return start, stop

    @cached_property
    def _single(self) -> bool:
        return bool((np.diff(self.ptr) <= 1).all())

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        rank = self.rank[keys]
        if self._single:
            start, stop = (x[first:last, None] for x in self._one)
            found: Bools = rank >= np.maximum(start, 0)
            found &= rank < stop
            return found
        ranks = int(max(self.rank.max(initial=-1), self.stop.max(initial=0))) + 2
        ends = np.zeros((last - first, ranks), np.int8)
        inside = slice(self.ptr[first], self.ptr[last])
        row = np.repeat(np.arange(last - first), np.diff(self.ptr[first : last + 1]))
        np.add.at(ends, (row, self.start[inside]), 1)
        np.add.at(ends, (row, self.stop[inside]), -1)
        return np.cumsum(ends, axis=1, dtype=np.int8).view(bool)[:, rank]  # the last has none

    def bounds(self, block: int) -> Bounds:
        k = Extremes.of(self.rank, block)
        start, stop = self._one
        starts = np.arange(0, len(start), block)
        some = stop > start
        first = np.minimum.reduceat(np.where(some, start, NONE), starts)[:, None]
        last = np.maximum.reduceat(stop, starts)[:, None]
        possible = (first <= k.most) & (last > k.least)
        if not self._single:
            return possible, np.zeros_like(possible)
        latest = np.maximum.reduceat(np.where(some, start, NONE), starts)[:, None]
        soonest = np.minimum.reduceat(stop, starts)[:, None]
        return possible, (latest <= k.least) & (soonest > k.most) & ~k.lacks


class TurnedTest:
    """Another test of the key and the query, some keys at a time."""

    def __init__(self, test: PairTest) -> None:
        self.test = test

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        queries, parts = np.arange(first, last), []
        ends = np.append(np.flatnonzero(np.diff(keys) != 1) + 1, len(keys))
        at = 0
        for end in ends.tolist():  # of neighbours
            parts.append(self.test.holds(int(keys[at]), int(keys[end - 1]) + 1, queries).T)
            at = end
        return np.concatenate(parts, axis=1)

    def bounds(self, block: int) -> Bounds:
        possible, certain = self.test.bounds(block)
        return possible.T.copy(), certain.T.copy()


class ListTest:
    """Pairs of rows, one by one."""

    def __init__(self, rows: Rows, order: Order) -> None:
        self.rows, self.m = rows.expand(), rows.m
        self.query = order.query
        self.place = np.empty(len(order.key), np.int64)
        self.place[order.key] = np.arange(len(order.key))

    def _pairs(self, first: int, last: int) -> tuple[Ints, Ints]:
        ptr, query = self.rows.ptr, self.query[first:last]
        count = np.diff(ptr)[query]
        which = ranges(ptr[:-1][query], count)
        size = self.rows.size[which]
        row = np.repeat(np.repeat(np.arange(len(query)), count), size)
        return row, self.place[ranges(self.rows.start[which], size, self.rows.step[which])]

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        found = np.zeros((last - first, self.m), bool)
        found[self._pairs(first, last)] = True
        return found if len(keys) == self.m else found[:, keys]

    def bounds(self, block: int) -> Bounds:
        n, width = len(self.query), -(-self.m // block)
        if self.rows.count() > LONG * (n + self.m):
            return _unknown(n, self.m, block)
        found = []
        for top in range(0, n, block):
            _, key = self._pairs(top, min(top + block, n))
            found.append(np.bincount(key // block, minlength=width))
        pairs = np.stack(found)
        return pairs > 0, pairs == block * block


class OtherTest:
    """Any test of pairs."""

    def __init__(self, leaf: Tested, order: Order) -> None:
        self.leaf, self.order = leaf, order

    def among(self, found: Bools, first: int, keys: Ints) -> Bools:
        """Those of `found` that meet it."""
        row, column = np.nonzero(found)
        for at in range(0, len(row), AT_ONCE):
            i, j = row[at : at + AT_ONCE], column[at : at + AT_ONCE]
            found[i, j] = self.leaf.holds(self.order.query[first + i], self.order.key[keys[j]])
        return found

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        return self.among(np.ones((last - first, len(keys)), bool), first, keys)

    def bounds(self, block: int) -> Bounds:
        return _unknown(len(self.order.query), len(self.order.key), block)


class NotTest:
    """Pairs that another test has not."""

    def __init__(self, test: PairTest) -> None:
        self.test = test

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        found: Bools = ~self.test.holds(first, last, keys)
        return found

    def bounds(self, block: int) -> Bounds:
        possible, certain = self.test.bounds(block)
        return ~certain, ~possible


class AllTests:
    """Pairs that all tests have; those that look at one pair at a time come last."""

    def __init__(self, tests: list[PairTest], order: Order) -> None:
        self.tests = [test for test in tests if not isinstance(test, OtherTest)]
        self.others = [test for test in tests if isinstance(test, OtherTest)]
        self.shape = len(order.query), len(order.key)

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        found: Bools | None = None
        for test in self.tests:
            more = test.holds(first, last, keys)
            found = more if found is None else np.logical_and(found, more, out=found)
        found = np.ones((last - first, len(keys)), bool) if found is None else found
        for other in self.others:
            found = other.among(found, first, keys)
        return found

    def bounds(self, block: int) -> Bounds:
        possible, _ = _unknown(*self.shape, block)
        certain = possible.copy()
        for test in (*self.tests, *self.others):
            may, must = test.bounds(block)
            possible &= may
            certain &= must
        return possible, certain


class AnyTest:
    """Pairs that some test has."""

    def __init__(self, tests: list[PairTest]) -> None:
        self.tests = tests

    def holds(self, first: int, last: int, keys: Ints) -> Bools:
        found = self.tests[0].holds(first, last, keys)
        for test in self.tests[1:]:
            found |= test.holds(first, last, keys)
        return found

    def bounds(self, block: int) -> Bounds:
        possible, certain = self.tests[0].bounds(block)
        for test in self.tests[1:]:
            may, must = test.bounds(block)
            possible, certain = possible | may, certain | must
        return possible, certain


def runs_test(leaf: Runs, order: Order) -> PairTest:
    """Rows of tokens as they are: intervals of their numbers where these are few, else pairs."""
    wide = leaf.rows.expand()
    test: PairTest = ListTest(leaf.rows, order)
    if not leaf.is_list and not (wide.step > 1).any():
        rank = np.arange(leaf.rows.m)
        test = IntervalTest(Interval(leaf.name, wide.ptr, wide.start, wide.stop, rank), order)
    return NotTest(test) if leaf.negated else test
