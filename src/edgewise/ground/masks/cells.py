"""Cells: rectangles of sorted queries and keys, clipped by conditions until pairs are left."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgewise.ground.masks.leaves import Equal, Interval, Related, Tested
from edgewise.layouts import Rows, compressed, rows_of_trapezoids, trapezoids
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges, starts_of_runs
from edgewise.layouts.rows import row_by_row

MOST_CELLS = 1 << 23
MOST_TESTED = 1 << 31  # pairs, one by one
AT_ONCE = 1 << 18  # pairs that are tested, with a column of each value that is read


class TooManyCells(Exception):
    """Internal: an order of tokens has too many runs of keys."""


@dataclass(frozen=True, eq=False)
class Order:
    """The token at each place of the sorted axes."""

    query: Ints
    key: Ints
    most: int = MOST_CELLS  # cells that are worth it

    def check(self, count: int) -> None:
        """Refuse more cells than are worth it, before they are made."""
        if count > self.most:
            raise TooManyCells(f"{count:,} runs of keys")

    @property
    def is_identity(self) -> bool:
        return all(bool((x[1:] > x[:-1]).all()) for x in (self.query, self.key))


@dataclass(frozen=True, eq=False)
class Cells:
    """Disjoint rectangles: places top ≤ i < bottom of queries, left ≤ j < right of keys."""

    top: Ints
    bottom: Ints
    left: Ints
    right: Ints

    def __len__(self) -> int:
        return len(self.top)

    @property
    def T(self) -> Cells:
        """Keys as queries."""
        return Cells(self.left, self.right, self.top, self.bottom)

    def take(self, which: Ints) -> Cells:
        return Cells(self.top[which], self.bottom[which], self.left[which], self.right[which])

    @property
    def area(self) -> int:
        return int(((self.bottom - self.top) * (self.right - self.left)).sum())


def cells_of(rows: Rows, order: Order) -> Cells:
    """The cells of rows; one for each key where these are progressions."""
    flat = not (rows.dstart.any() or rows.dstop.any())
    if flat and not (rows.step > 1).any():
        top, bottom = rows.top[rows.slab], rows.top[rows.slab + 1]
        return Cells(top, bottom, rows.start, rows.stop)
    order.check(rows.n + len(rows.start))
    wide = rows.expand()
    row, start, stop = wide.slab, wide.start, wide.stop
    if (wide.step > 1).any():
        order.check(wide.count())
        size = wide.size
        row, start = np.repeat(row, size), ranges(start, size, wide.step)
        stop = start + 1
    return Cells(row, row + 1, start, stop)


def rows_of(n: int, m: int, cells: Cells) -> Rows:
    """The normal form of disjoint cells."""
    if not (cells.bottom - cells.top == 1).all():
        ends = (cells.top, cells.bottom)
        return rows_of_trapezoids(n, m, trapezoids(ends, cells.left, cells.right))
    key = cells.top * (m + 1) + cells.left
    if not (key[1:] > key[:-1]).all():
        cells = cells.take(np.argsort(key, kind="stable"))
    opens = np.ones(len(cells), bool)
    opens[1:] = (cells.left[1:] != cells.right[:-1]) | (cells.top[1:] != cells.top[:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(cells)) - 1 if len(first) else first
    ptr = pointer(np.bincount(cells.top[first], minlength=n))
    return compressed(row_by_row(n, m, ptr, cells.left[first], cells.right[last]))


Hull = tuple[Ints, Ints]  # for each query, the first key that it may attend to, and behind the last


def hull_of(rows: Rows) -> Hull:
    """Between which keys the rows of queries lie."""
    wide = rows.expand()
    first, last = np.full(rows.n, rows.m), np.zeros(rows.n, np.int64)
    np.minimum.at(first, wide.slab, wide.start)
    np.maximum.at(last, wide.slab, wide.stop)
    return first, last


def of_classes(leaf: Equal | Related, order: Order, hull: Hull | None = None) -> Cells:
    """A cell for each run of queries of a class and each run of keys of a class with it; of keys
    outside of a hull none are needed."""
    of_query, top, bottom = _runs(leaf.query[order.query])
    of_key, left, right = _runs(leaf.key[order.key])
    by = np.argsort(of_key, kind="stable")
    sorted_ = of_key[by]
    if isinstance(leaf, Related):
        count = np.diff(leaf.ptr)[of_query]
        order.check(int(count.sum()))
        run = np.repeat(np.arange(len(of_query)), count)
        wanted = leaf.other[ranges(leaf.ptr[:-1][of_query], count)]
    else:
        run, wanted = np.arange(len(of_query)), of_query
    if hull is None:
        first = np.searchsorted(sorted_, wanted)
        count = np.searchsorted(sorted_, wanted, side="right") - first
    else:  # runs of a class are sorted: the first that ends inside, to the last that begins there
        low, high = (_extreme(hull[end], end, top, bottom)[run] for end in (0, 1))
        span = len(order.key) + 1
        first = np.searchsorted(sorted_ * span + right[by], wanted * span + low, side="right")
        last = np.searchsorted(sorted_ * span + left[by], wanted * span + high)
        count = np.maximum(last - first, 0)
    order.check(int(count.sum()))
    at, run = by[ranges(first, count)], np.repeat(run, count)
    return Cells(top[run], bottom[run], left[at], right[at])


def _extreme(ends: Ints, largest: int, top: Ints, bottom: Ints) -> Ints:
    """The least, or the largest, of each run of queries."""
    if not len(top):
        return top
    least = np.maximum if largest else np.minimum
    both = np.stack([top, bottom], 1).ravel()
    return np.asarray(least.reduceat(np.append(ends, ends[-1]), both)[::2])


def as_test(leaf: Equal | Related) -> Tested:
    """The same condition, looked up for one pair at a time."""
    if isinstance(leaf, Equal):
        return Tested(leaf.name, lambda i, j: (leaf.query[i] >= 0) & (leaf.query[i] == leaf.key[j]))
    width = int(max(leaf.key.max(initial=-1), leaf.other.max(initial=-1))) + 2
    codes = owners(leaf.ptr) * width + leaf.other

    def holds(i: Ints, j: Ints) -> Bools:
        u, w = leaf.query[i], leaf.key[j]
        at = np.minimum(np.searchsorted(codes, u * width + w), max(len(codes) - 1, 0))
        found = codes[at] == u * width + w if len(codes) else np.zeros(len(i), bool)
        return (u >= 0) & (w >= 0) & found

    return Tested(leaf.name, holds)


def _runs(classes: Ints) -> tuple[Ints, Ints, Ints]:
    """Runs of a class, their first places and those behind their last; none of class -1."""
    first = starts_of_runs(classes)
    last = np.append(first[1:], len(classes)) if len(first) else first
    some = classes[first] >= 0
    return classes[first][some], first[some], last[some]


def clipped(cells: Cells, leaf: Interval, order: Order) -> Cells:
    """The parts of cells whose keys are in the intervals of their queries."""
    if leaf.turned:
        other = Order(order.key, order.query, order.most)
        tall = clipped(cells.T, replace(leaf, turned=False), other).T
        order.check(int((tall.bottom - tall.top).sum()))  # at most this many runs of keys
        return tall
    rank = leaf.rank[order.key]
    breaks = np.ones(len(rank), bool)
    breaks[1:] = (rank[1:] < rank[:-1]) | ((rank[1:] < 0) != (rank[:-1] < 0))
    run = np.cumsum(breaks) - 1
    ends = np.append(np.flatnonzero(breaks), len(rank))
    cells, of = _cut(cells, run, ends, order)
    some = rank[cells.left] >= 0
    cells, of = cells.take(np.flatnonzero(some)), of[some]
    height = cells.bottom - cells.top
    order.check(int(height.sum()))
    row, at = ranges(cells.top, height), np.repeat(np.arange(len(cells)), height)
    query = order.query[row]
    count = np.diff(leaf.ptr)[query]
    order.check(int(count.sum()))
    which = ranges(leaf.ptr[:-1][query], count)
    row, at = np.repeat(row, count), np.repeat(at, count)
    span = int(max(rank.max(initial=0), leaf.stop.max(initial=0))) + 2
    code = run * span + rank
    start = np.searchsorted(code, of[at] * span + leaf.start[which])
    stop = np.searchsorted(code, of[at] * span + leaf.stop[which])
    start, stop = np.maximum(start, cells.left[at]), np.minimum(stop, cells.right[at])
    some = start < stop
    row = row[some]
    return Cells(row, row + 1, start[some], stop[some])


def _cut(cells: Cells, run: Ints, ends: Ints, order: Order) -> tuple[Cells, Ints]:
    """Cells cut where runs of keys end, and the run of each."""
    first, last = run[cells.left], run[cells.right - 1]
    count = last - first + 1
    order.check(int(count.sum()))
    at, of = np.repeat(np.arange(len(cells)), count), ranges(first, count)
    left = np.maximum(cells.left[at], ends[of])
    right = np.minimum(cells.right[at], ends[of + 1])
    return Cells(cells.top[at], cells.bottom[at], left, right), of


def tested(cells: Cells, leaf: Tested, order: Order) -> Cells:
    """The runs of keys in cells that meet a test, which is evaluated for each pair of them."""
    if cells.area > MOST_TESTED:
        raise TooManyCells(f"a test of {cells.area:,} pairs")
    height = cells.bottom - cells.top
    row, at = ranges(cells.top, height), np.repeat(np.arange(len(cells)), height)
    left, right = cells.left[at], cells.right[at]
    total = pointer(right - left)
    steps = np.unique(np.searchsorted(total, np.arange(0, int(total[-1]) + AT_ONCE, AT_ONCE)))
    steps = np.unique(np.clip(np.append(steps, len(row)), 0, len(row)))
    found = [Cells(*(np.zeros(0, np.int64) for _ in range(4)))]
    for a, b in zip(steps[:-1].tolist(), steps[1:].tolist(), strict=True):
        size = right[a:b] - left[a:b]
        i, j = np.repeat(row[a:b], size), ranges(left[a:b], size)
        of = np.repeat(np.arange(a, b), size)
        holds = leaf.holds(order.query[i], order.key[j])
        i, j, of = i[holds], j[holds], of[holds]
        opens = np.ones(len(j), bool)
        opens[1:] = (j[1:] != j[:-1] + 1) | (of[1:] != of[:-1])
        first = np.flatnonzero(opens)
        last = np.append(first[1:], len(j)) - 1 if len(first) else first
        found.append(Cells(i[first], i[first] + 1, j[first], j[last] + 1))
        order.check(sum(map(len, found)))
    return Cells(*(np.concatenate(parts) for parts in zip(*map(_parts, found), strict=True)))


def _parts(cells: Cells) -> tuple[Ints, Ints, Ints, Ints]:
    return cells.top, cells.bottom, cells.left, cells.right


def every_pair(n: int, m: int) -> Cells:
    """All pairs."""
    if not n or not m:
        return Cells(*(np.zeros(0, np.int64) for _ in range(4)))
    return Cells(*(np.array([x]) for x in (0, n, 0, m)))
