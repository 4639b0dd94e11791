"""A mask, lowered to rows of keys in the order of tokens that costs least.

In an order every condition is a set of rows: tokens of a class are runs that meet in rectangles,
intervals clip them, lists and tests do so pair by pair; union, intersection and difference are
those of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import assert_never

import numpy as np

from edgewise.ground.masks.cells import (
    Hull,
    Order,
    TooManyCells,
    as_test,
    cells_of,
    clipped,
    every_pair,
    hull_of,
    of_classes,
    rows_of,
    tested,
)
from edgewise.ground.masks.leaves import Equal, Interval, Leaf, Related, Runs, Tested
from edgewise.ground.masks.orders import candidate_orders, joint_classes
from edgewise.ground.masks.pair_tests import (
    AllTests,
    AnyTest,
    EqualTest,
    IntervalTest,
    NotTest,
    OtherTest,
    PairTest,
    RelatedTest,
    TurnedTest,
    runs_test,
)
from edgewise.ground.masks.read import AllOf, AnyOf, NotIn, Read, read_mask
from edgewise.ground.masks.sides import Pairs
from edgewise.layouts import AND, MINUS, NOT, NOTHING, OR, Rows, combine, fold, rows_of_pairs
from edgewise.layouts.bitmap import SLAB, Bitmap
from edgewise.layouts.blocks import nonempty_blocks
from edgewise.layouts.ragged import ranges
from edgewise.plan.mask import Mask

LEAST_BLOCK, MOST_BLOCKS = 64, 1024  # of a side: blocks are larger where there are more
PER_PAIR = 12.0  # the cost of a pair of a list, in pairs of a dense product
MOVED = 64.0  # the cost of moving a token
GOOD = 2.0  # the cost of a pair in an order that leaves little to gain
SMALL = 1 << 26  # pairs that are tested in less time than many runs are found
MOST_RUNS = 1 << 16
MOST_LISTED = 1 << 24  # runs of an order: some hundred bytes each while they are combined
MOST_TESTED = 1 << 32  # pairs, one by one or in blocks
SHORT = 64  # pairs for each token, in a list to begin with
INPUT_ORDER = "in input order"


@dataclass(frozen=True, eq=False)
class LoweredMask:
    """The pairs of sorted tokens, their order (None: that of the input), and why it was chosen."""

    rows: Rows | Bitmap
    order: Order | None
    lines: tuple[str, ...]


def lower_mask(mask: Mask, pairs: Pairs, *, sort: bool) -> LoweredMask:
    """The pairs of a mask in the order that costs least; without `sort` as tokens are."""
    read = read_mask(mask, pairs)
    if pairs.queries.sample is not None:
        assert pairs.keys.sample is not None
        samples = Equal("the sample", pairs.queries.sample, pairs.keys.sample)
        read = (
            AllOf((samples,), (read,))
            if not isinstance(read, AllOf)
            else AllOf((samples, *read.leaves), read.parts)
        )
    return _cheapest(read, *pairs.shape, sort)


@dataclass(frozen=True, eq=False)
class Candidate:
    """What the pairs cost in an order of tokens."""

    cost: float
    name: str
    order: Order
    moved: float
    rows: Rows | None = None

    @property
    def moves(self) -> bool:
        return self.name != INPUT_ORDER


def _cheapest(read: Read, n: int, m: int, sort: bool) -> LoweredMask:
    """The pairs in the order that costs least, as rows or, where these are too many, as bits.

    Orders are estimated by blocks that may hold pairs, and tried until one leaves little to gain.
    """
    plain = (INPUT_ORDER, Order(np.arange(n), np.arange(m)))
    estimates = [
        _estimate(read, n, m, *one) for one in (*(candidate_orders(read) if sort else ()), plain)
    ]
    most = MOST_RUNS if n * m <= SMALL else min(32 * (n + m), MOST_LISTED)
    found: list[Candidate] = []
    lines: list[str] = []
    for one in sorted(estimates, key=lambda one: (one.cost, one.moves)):
        if any(c.rows is not None and c.cost <= GOOD * c.rows.count() for c in found):
            lines.append(f"not {one.name}: cost about {one.cost:,.0f}")
            continue
        try:
            rows = _rows(read, n, m, replace(one.order, most=most))
            found.append(replace(one, cost=_cost(rows) + one.moved, rows=rows))
        except TooManyCells as reason:
            if n * m > MOST_TESTED:
                lines.append(f"not {one.name}: {reason}")
            else:
                found.append(one)
    if not found:
        raise TooManyCells(
            f"{n * m:,} pairs to test, and no order of tokens with fewer runs of keys"
        )
    best = min(found, key=lambda one: (one.cost, one.moves))
    pairs = best.rows if best.rows is not None else _bitmap(read, n, m, best.order)
    how = "" if best.rows is not None else ", tested in blocks"
    head = f"tokens {best.name}{how}: {pairs.count():,} of {n * m:,} pairs, cost {best.cost:,.0f}"
    others = [f"not {one.name}: cost {one.cost:,.0f}" for one in found if one is not best]
    return LoweredMask(pairs, best.order if best.moves else None, (head, *others, *lines))


def _estimate(read: Read, n: int, m: int, name: str, order: Order) -> Candidate:
    """An order with the pairs of the blocks that may hold some."""
    block = _block(n, m, SLAB)
    possible, _ = _test(read, order).bounds(block)
    moved = MOVED * (n + 2 * m) if name != INPUT_ORDER else 0.0
    return Candidate(float(min(int(possible.sum()) * block**2, n * m)) + moved, name, order, moved)


def _cost(rows: Rows) -> float:
    """Pairs of the blocks that hold any, or pairs of a list where that is less."""
    if not rows.n or not rows.m:
        return 0.0
    block = _block(rows.n, rows.m, LEAST_BLOCK)
    area = int(nonempty_blocks(rows, block).sum()) * block * block
    return min(float(area), PER_PAIR * rows.count())


def _block(n: int, m: int, least: int) -> int:
    """The side of blocks that are counted."""
    block = least
    while max(n, m) > block * MOST_BLOCKS:
        block *= 2
    return block


def _bitmap(read: Read, n: int, m: int, order: Order) -> Bitmap:
    test = _test(read, order)
    return Bitmap(n, m, test.holds, *test.bounds(SLAB))


def _test(read: Read, order: Order) -> PairTest:
    """The tree as a test of pairs in an order of tokens."""
    match read:
        case AllOf(leaves, parts):
            every = [_leaf_test(leaf, order) for leaf in leaves]
            return AllTests([*every, *(_test(part, order) for part in parts)], order)
        case AnyOf(parts):
            return AnyTest([_test(part, order) for part in parts])
        case NotIn(part):
            return NotTest(_test(part, order))
    assert_never(read)


def _leaf_test(leaf: Leaf, order: Order) -> PairTest:
    match leaf:
        case Equal():
            return EqualTest(leaf, order)
        case Related():
            return RelatedTest(leaf, order)
        case Interval():
            if leaf.turned:
                return TurnedTest(IntervalTest(leaf, Order(order.key, order.query)))
            return IntervalTest(leaf, order)
        case Runs():
            return runs_test(leaf, order)
        case Tested():
            return OtherTest(leaf, order)
    assert_never(leaf)


def _rows(read: Read, n: int, m: int, order: Order) -> Rows:
    """The pairs in an order of tokens."""
    match read:
        case AllOf():
            return _all_of(read, n, m, order)
        case AnyOf(parts):
            every = [_rows(part, n, m, order).trapezoids() for part in parts]
            return fold(n, m, every, OR)
        case NotIn(part):
            return combine(n, m, _rows(part, n, m, order).trapezoids(), NOTHING, NOT)
    assert_never(read)


def _all_of(read: AllOf, n: int, m: int, order: Order) -> Rows:
    identity = order.is_identity
    equal = joint_classes([leaf for leaf in read.leaves if isinstance(leaf, Equal)])
    classes = [leaf for leaf in (equal, *read.leaves) if isinstance(leaf, Related) or leaf is equal]
    runs = [leaf for leaf in read.leaves if isinstance(leaf, Runs) and not leaf.negated]
    listed = [leaf for leaf in runs if identity or leaf.is_list]
    tests = [leaf for leaf in read.leaves if isinstance(leaf, Tested)]
    if any(leaf.rows.count() <= SHORT * (n + m) for leaf in listed):  # one by one, of those listed
        tests = [*(as_test(leaf) for leaf in classes if leaf is not None), *tests]
        classes = []
    solid = [_rows(part, n, m, order) for part in read.parts if not isinstance(part, NotIn)]
    solid += [leaf.rows if identity else _moved(leaf.rows, order) for leaf in listed]
    hull = _hull(solid) if any(leaf is not None for leaf in classes) else None
    solid += [rows_of(n, m, of_classes(leaf, order, hull)) for leaf in classes if leaf is not None]
    rows = (
        reduce(lambda a, b: combine(n, m, a.trapezoids(), b.trapezoids(), AND), solid)
        if (solid)
        else rows_of(n, m, every_pair(n, m))
    )
    clips = [leaf for leaf in read.leaves if isinstance(leaf, Interval)]
    clips += [_interval(leaf, order) for leaf in runs if leaf not in listed]
    if clips or tests:
        cells = cells_of(rows, order)
        for clip in clips:
            cells = clipped(cells, clip, order)
        for test in tests:
            cells = tested(cells, test, order)
        rows = rows_of(n, m, cells)
    for without in _without(read, n, m, order, rows, identity):
        rows = combine(n, m, rows.trapezoids(), without.trapezoids(), MINUS)
    return rows


def _hull(solid: Sequence[Rows]) -> Hull | None:
    """Between which keys pairs of all rows lie; None if these are any."""
    if not solid:
        return None
    first, last = zip(*map(hull_of, solid), strict=True)
    return np.maximum.reduce(first), np.minimum.reduce(last)


def _without(
    read: AllOf, n: int, m: int, order: Order, rows: Rows, identity: bool
) -> Iterator[Rows]:
    """What is taken away from rows."""
    for part in read.parts:
        if isinstance(part, NotIn):
            yield _rows(part.part, n, m, order)
    for leaf in read.leaves:
        if isinstance(leaf, Runs) and leaf.negated:
            if identity:
                yield leaf.rows
            elif leaf.is_list:
                yield _moved(leaf.rows, order)
            else:
                yield rows_of(n, m, clipped(cells_of(rows, order), _interval(leaf, order), order))


def _moved(rows: Rows, order: Order) -> Rows:
    """The same pairs of sorted tokens, one by one."""
    i, j = rows.edges().numpy()
    place = [np.empty(len(x), np.int64) for x in (order.query, order.key)]
    for at, x in zip(place, (order.query, order.key), strict=True):
        at[x] = np.arange(len(x))
    return rows_of_pairs(rows.n, rows.m, place[0][i], place[1][j])


def _interval(leaf: Runs, order: Order) -> Interval:
    """Runs of tokens as intervals of their numbers."""
    cells = cells_of(leaf.rows, order)
    height = cells.bottom - cells.top
    row = ranges(cells.top, height)
    by = np.argsort(row, kind="stable")
    start, stop = (np.repeat(x, height)[by] for x in (cells.left, cells.right))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=leaf.rows.n))])
    return Interval(leaf.name, ptr, start, stop, np.arange(leaf.rows.m))
