"""Pairs that may meet comparisons: of blocks of rows that lie close together, the least and the
largest numbers say whether one of their pairs can, `(X - P) * (X - P) + (Y - Q) * (Y - Q) <= 9`.

Blocks are cut into smaller ones as long as they may have a pair, so that what is looked at is
linear in what is left, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgewise.ground.masks.comparisons import Compared, NotSeparate, TestReader, Tree
from edgewise.layouts.ragged import Ints
from edgewise.plan.mask import Condition

SMALLEST, PARTS = 16, 4  # rows of the smallest blocks; blocks in one of the next larger
BEGIN = 1 << 12  # pairs of blocks to begin with
EXACT = float(1 << 53)  # integers below are exact as floating point numbers
BITS = 60  # of a place on the curve that keeps neighbours together
AT_ONCE = 1 << 20  # pairs
Ends = tuple[NDArray[np.float64], NDArray[np.float64]]  # the least and the largest number
EVERYTHING: Ends = (np.array(-np.inf), np.array(np.inf))


@dataclass(frozen=True, eq=False)
class BoundedRows:
    """Rows in an order that keeps neighbours together, and the ends of columns in blocks of it."""

    order: Ints
    columns: Mapping[str, NDArray[np.float64]]

    @staticmethod
    def of(columns: Mapping[str, Ints]) -> BoundedRows:
        order = _neighbours(list(columns.values()))
        return BoundedRows(
            order, {name: column[order].astype(float) for name, column in columns.items()}
        )

    def count(self, size: int) -> int:
        return -(-len(self.order) // size)

    def ends(self, size: int) -> dict[str, Ends]:
        starts = np.arange(0, len(self.order), size)
        return {
            name: (np.minimum.reduceat(column, starts), np.maximum.reduceat(column, starts))
            for name, column in self.columns.items()
        }


def near_pairs(
    query: Mapping[str, Ints], key: Mapping[str, Ints], tests: Sequence[Condition], most: int
) -> Iterator[tuple[Ints, Ints]] | None:
    """Pairs of rows of two tables that have equal columns of the same name and may meet all tests,
    in parts; None where they are more than `most`, or no test says which they are."""
    compared = _compared(tests, frozenset(query) | frozenset(key))
    if not compared or not all(len(column) for column in (*query.values(), *key.values())):
        return None
    sides = BoundedRows.of(query), BoundedRows.of(key)
    size = SMALLEST
    while sides[0].count(size) * sides[1].count(size) > BEGIN:
        size *= PARTS
    pairs = np.divmod(np.arange(sides[0].count(size) * sides[1].count(size)), sides[1].count(size))
    while True:
        pairs = _possible(pairs, sides, size, compared)
        if size == SMALLEST:
            break
        if PARTS**2 * len(pairs[0]) * SMALLEST**2 > PARTS * most:
            return None
        size //= PARTS
        pairs = _parts(pairs, sides[0].count(size), sides[1].count(size))
    return None if len(pairs[0]) * SMALLEST**2 > most else _rows(pairs, sides)


def _compared(tests: Sequence[Condition], known: frozenset[str]) -> list[Compared]:
    """What tests compare; of a test that is nothing else, or may hold for strings, nothing."""
    reader = TestReader(known)
    waiting = [test for test in tests if not test.negated]
    while waiting:
        later = []
        for test in waiting:
            try:
                if not reader.is_read(test):
                    later.append(test)
            except NotSeparate:
                pass
        if len(later) == len(waiting):
            break
        waiting = later
    return reader.found


def _parts(pairs: tuple[Ints, Ints], n: int, m: int) -> tuple[Ints, Ints]:
    """All pairs of the smaller blocks in pairs of blocks."""
    inner = np.divmod(np.arange(PARTS**2), PARTS)
    a, b = ((PARTS * x[:, None] + y).ravel() for x, y in zip(pairs, inner, strict=True))
    inside = (a < n) & (b < m)
    return a[inside], b[inside]


def _rows(
    pairs: tuple[Ints, Ints], sides: tuple[BoundedRows, BoundedRows]
) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of rows in pairs of the smallest blocks."""
    each = AT_ONCE // SMALLEST**2
    for at in range(0, len(pairs[0]), each):
        a, b = (x[at : at + each] for x in pairs)
        inner = np.divmod(np.arange(SMALLEST**2), SMALLEST)
        i, j = ((SMALLEST * x[:, None] + y).ravel() for x, y in zip((a, b), inner, strict=True))
        inside = (i < len(sides[0].order)) & (j < len(sides[1].order))
        yield sides[0].order[i[inside]], sides[1].order[j[inside]]


def _possible(
    pairs: tuple[Ints, Ints],
    sides: tuple[BoundedRows, BoundedRows],
    size: int,
    compared: Sequence[Compared],
) -> tuple[Ints, Ints]:
    """The pairs of blocks that may have a pair of rows."""
    query, key = (side.ends(size) for side in sides)
    for name in query.keys() & key.keys():
        (a, b), (c, d) = (ends[name] for ends in (query, key))
        i, j = pairs
        pairs = _chosen(pairs, (a[i] <= d[j]) & (c[j] <= b[i]))
    for one in compared:
        i, j = pairs
        ends = {name: (a[j], b[j]) for name, (a, b) in key.items()}
        ends |= {name: (a[i], b[i]) for name, (a, b) in query.items()}
        may = _may(one.sign, ends_of(one.left, ends), ends_of(one.right, ends))
        pairs = _chosen(pairs, np.broadcast_to(may, i.shape))
    return pairs


def _chosen(pairs: tuple[Ints, Ints], which: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    return pairs[0][which], pairs[1][which]


def _may(sign: str, left: Ends, right: Ends) -> NDArray[np.bool_]:
    """Whether some numbers between the ends of both sides compare."""
    (a, b), (c, d) = left, right
    found: NDArray[np.bool_]
    match sign:
        case "<=":
            found = a <= d
        case "<":
            found = a < d
        case ">=":
            found = b >= c
        case ">":
            found = b > c
        case "==":
            found = (a <= d) & (c <= b)
        case _:
            found = ~((a == b) & (c == d) & (a == c))
    return found


def ends_of(tree: Tree, ends: Mapping[str, Ends]) -> Ends:
    """Between which numbers a tree is if its variables are between theirs.

    >>> x = ("variable", "X")
    >>> [float(end) for end in ends_of(("*", x, x), {"X": (np.array(-1.0), np.array(3.0))})]
    [0.0, 9.0]
    """
    if isinstance(tree, int):
        return np.array(float(tree)), np.array(float(tree))
    if tree[0] == "variable":
        return ends[tree[1]]
    a, b = ends_of(tree[1], ends)
    with np.errstate(invalid="ignore", over="ignore"):
        found = _operated(tree, a, b, ends)
        large = np.maximum(abs(found[0]), abs(found[1])) < EXACT  # False of NaN
    return np.where(large, found[0], -np.inf), np.where(large, found[1], np.inf)


def _operated(
    tree: Tree, a: NDArray[np.float64], b: NDArray[np.float64], ends: Mapping[str, Ends]
) -> Ends:
    """The ends of an operator whose first operand is between a and b."""
    if tree[0] == "abs" or (tree[0] == "*" and tree[1] == tree[2]):
        least = np.maximum(np.maximum(a, -b), 0.0)
        most = np.maximum(abs(a), abs(b))
        return (least, most) if tree[0] == "abs" else (least * least, most * most)
    c, d = ends_of(tree[2], ends)
    match tree[0]:
        case "+":
            return a + c, b + d
        case "-":
            return a - d, b - c
        case "*":
            products = np.stack(np.broadcast_arrays(a * c, a * d, b * c, b * d))
            return products.min(0), products.max(0)
    divisor = tree[2]
    if not isinstance(divisor, int) or divisor <= 0:
        return EVERYTHING
    if tree[0] == "//":
        return np.floor_divide(a, divisor), np.floor_divide(b, divisor)
    same = np.floor_divide(a, divisor) == np.floor_divide(b, divisor)
    return np.where(same, a % divisor, 0.0), np.where(same, b % divisor, divisor - 1.0)


def _neighbours(columns: Sequence[Ints]) -> Ints:
    """An order of rows in which those with close ranks in all columns are close: bits of the
    ranks, taken from each in turn, are a place on a curve (Morton, 1966)."""
    bits = BITS // len(columns)
    code = np.zeros(len(columns[0]), np.int64)
    for number, column in enumerate(columns):
        values, rank = np.unique(column, return_inverse=True)
        length = int(len(values) - 1).bit_length()
        rank = rank.ravel() << max(bits - length, 0) >> max(length - bits, 0)
        for bit in range(bits):
            code |= (rank >> bit & 1) << (bit * len(columns) + number)
    return np.argsort(code, kind="stable")
