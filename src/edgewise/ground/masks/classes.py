"""Conditions as classes of tokens: whether a pair holds follows from the classes of its two ends.

`speaker(I, S), speaker(J, S)` makes a class of each speaker; tokens with several values, or related
by a test, have the classes that their sets of values make. Classes are compared, never tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from edgewise.ground.masks.bounds import near_pairs
from edgewise.ground.masks.comparisons import NotSeparate
from edgewise.ground.masks.leaves import Leaf, Related, Runs, Test, Tested
from edgewise.ground.masks.ranges import intervals
from edgewise.ground.masks.separated import SeparatedSides
from edgewise.ground.masks.sides import Pairs, attributes_in, codes_of, equal, shown
from edgewise.ground.masks.split import Sides, connected
from edgewise.ground.masks.tokens import Attributes
from edgewise.layouts import rows_of_pairs
from edgewise.layouts.ragged import Bools, Ints, distinct, distinct_rows, owners, pointer, ranges

MOST_COMPARED = 1 << 24  # pairs of classes
MOST_TESTED = 1 << 22  # pairs of values, all of which are tested
MOST_NEAR, FEWER = 1 << 25, 4  # of those that bounds leave, and times fewer than all
SPARSE = 64  # pairs for each token: fewer are listed as they are
AT_ONCE = 1 << 20  # tests


class TooManyClasses(Exception):
    """Internal: classes are too many to be compared."""


def of_sides(sides: Sides, pairs: Pairs) -> list[Leaf]:
    """What two sides that meet are on data."""
    if not sides.tests:
        left = pairs.of_query(sides.query, sides.shared)
        right = pairs.of_key(sides.key, sides.shared)
        return [_meeting(sides, left, right)]
    found = intervals(sides, pairs)
    return _one_by_one(sides, pairs) if found is None else found


def _one_by_one(sides: Sides, pairs: Pairs) -> list[Leaf]:
    """Where a token has one row, tests do not depend on one another."""
    on_query, on_key = _attributes(sides, pairs)
    left, right = pairs.of_query(sides.query, on_query), pairs.of_key(sides.key, on_key)
    if not left.functional or not right.functional:
        return _compared(sides, pairs)
    name = shown((*sides.query, *sides.key, *sides.tests))
    own = {n: c for n, c in right.columns.items() if n not in sides.shared}
    separated = SeparatedSides(name, left, Attributes(right.token, own, right.count))
    found: list[Leaf] = [equal(name, left, right, sides.shared)] if sides.shared else []
    for tests in connected(sides.tests, {*on_query, *on_key}):
        try:
            found += separated.leaves(tests)
        except NotSeparate:
            one = replace(sides, tests=tuple(tests))
            leaves = intervals(one, pairs) if len(tests) < len(sides.tests) else None
            found += _compared(one, pairs) if leaves is None else leaves
    return found


def _attributes(sides: Sides, pairs: Pairs) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The variables of each side that the other side or tests read."""
    on_query = (*sides.shared, *attributes_in(sides, sides.query, pairs.query))
    return on_query, (*sides.shared, *attributes_in(sides, sides.key, pairs.key))


def _meeting(sides: Sides, left: Attributes, right: Attributes) -> Leaf:
    name = shown((*sides.query, *sides.key, *sides.tests))
    if left.functional and right.functional:
        return equal(name, left, right, sides.shared)
    codes, other = codes_of(left.tuples(sides.shared), right.tuples(sides.shared))
    size = int(max(codes.max(initial=-1), other.max(initial=-1))) + 1
    total = int((np.bincount(codes, minlength=size) * np.bincount(other, minlength=size)).sum())
    if total <= SPARSE * (left.count + right.count):
        i, j = _join(codes, other)
        return Runs(name, rows_of_pairs(left.count, right.count, left.token[i], right.token[j]))
    same = np.arange(size)
    return _of_sets(name, (left, codes), (right, other), (same, same))


def _join(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """All pairs of places with equal numbers."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left)
    count = np.searchsorted(right[order], left, side="right") - first
    return np.repeat(np.arange(len(left)), count), order[ranges(first, count)]


def _joined_size(left: Ints, right: Ints) -> int:
    size = int(max(left.max(initial=-1), right.max(initial=-1))) + 1
    return int((np.bincount(left, minlength=size) * np.bincount(right, minlength=size)).sum())


def _of_sets(
    name: str,
    left: tuple[Attributes, Ints],
    right: tuple[Attributes, Ints],
    related: tuple[Ints, Ints],
) -> Related:
    """Classes are sets of numbers; two are related if a number of one is with one of the other."""
    query, u, of_u = _set_classes(*left)
    key, w, of_w = _set_classes(*right)
    if _joined_size(of_u, related[0]) > MOST_COMPARED:
        raise TooManyClasses(f"`{name}` has too many sets of values")
    at, link = _join(of_u, related[0])
    width = int(w.max(initial=-1)) + 1
    most = int(related[1].max(initial=-1)) + 1
    step = distinct(u[at] * max(most, 1) + related[1][link])  # (class, number) on the other side
    u, number = step // max(most, 1), step % max(most, 1)
    if _joined_size(number, of_w) > MOST_COMPARED:
        raise TooManyClasses(f"`{name}` has too many sets of values")
    at, link = _join(number, of_w)
    pairs = distinct(u[at] * max(width, 1) + w[link])
    classes = int(query.max(initial=-1)) + 1
    ptr = pointer(np.bincount(pairs // max(width, 1), minlength=classes))
    return Related(name, query, key, ptr, pairs % max(width, 1))


def _set_classes(found: Attributes, codes: Ints) -> tuple[Ints, Ints, Ints]:
    """The class of each token, and the numbers of each class as (class, number)."""
    order = np.lexsort((codes, found.token))
    token, codes = found.token[order], codes[order]
    size = np.bincount(token, minlength=found.count)
    ptr = pointer(size)
    chance = np.random.default_rng(0).integers(0, 1 << 62, int(codes.max(initial=-1)) + 1)
    total = np.zeros(found.count, np.int64)
    np.add.at(total, token, chance[codes])
    some = np.flatnonzero(size)
    _, first, label = np.unique(
        np.stack([total[some], size[some]], 1), axis=0, return_index=True, return_inverse=True
    )
    label, like = label.ravel(), some[first][label.ravel()]
    # equal sums are equal sets but by chance: those that are not are classes of their own
    mine = codes[ranges(ptr[some], size[some])]
    differs = mine != codes[ranges(ptr[like], size[some])]
    odd = np.unique(owners(pointer(size[some]))[differs])
    label[odd] = len(first) + np.arange(len(odd))
    shown_by = np.concatenate([some[first], some[odd]])
    classes = np.full(found.count, -1, np.int64)
    classes[some] = label
    numbers = codes[ranges(ptr[shown_by], size[shown_by])]
    return classes, owners(pointer(size[shown_by])), numbers


def _compared(sides: Sides, pairs: Pairs) -> list[Leaf]:
    """Tests of the values that occur, or of pairs where these are too many."""
    name, shared = shown((*sides.query, *sides.key, *sides.tests)), sides.shared
    on_query, on_key = _attributes(sides, pairs)
    left = pairs.of_query(sides.query, on_query)
    right = pairs.of_key(sides.key, on_key)
    values, u = distinct_rows(left.tuples(on_query))
    others, w = distinct_rows(right.tuples(on_key))
    meets, also = codes_of(values[:, : len(shared)], others[:, : len(shared)])

    def holds(a: Ints, b: Ints) -> Bools:
        columns = {n: others[b, p] for p, n in enumerate(on_key)}
        return pairs.tested(sides, columns | {n: values[a, p] for p, n in enumerate(on_query)})

    functional = left.functional and right.functional
    size = _joined_size(meets, also)
    near: Iterable[tuple[Ints, Ints]] | None
    if size <= MOST_TESTED:
        near = [_join(meets, also)]
    else:
        query = {name: values[:, p] for p, name in enumerate(on_query)}
        key = {name: others[:, p] for p, name in enumerate(on_key)}
        near = near_pairs(query, key, sides.tests, min(MOST_NEAR, size // FEWER))
    if near is not None:
        related = _tested(near, holds)
        if not functional:
            return [_of_sets(name, (left, u), (right, w), related)]
        ptr = pointer(np.bincount(related[0], minlength=len(values)))
        return [Related(name, left.by_token(u), right.by_token(w), ptr, related[1])]
    if not functional:
        i, j = pairs.joined((*sides.query, *sides.key, *sides.tests))
        return [Runs(name, rows_of_pairs(*pairs.shape, i, j))]
    of_query, of_key = left.by_token(u), right.by_token(w)

    def on_tokens(i: Ints, j: Ints) -> Bools:
        a, b = of_query[i], of_key[j]
        some = np.flatnonzero((a >= 0) & (b >= 0))
        found = np.zeros(len(i), bool)
        found[some] = holds(a[some], b[some])
        return found

    leaves: list[Leaf] = [Tested(name, on_tokens)]
    return [equal(name, left, right, shared), *leaves] if shared else leaves


def _tested(near: Iterable[tuple[Ints, Ints]], holds: Test) -> tuple[Ints, Ints]:
    """The pairs of values that meet the tests, ordered."""
    none = np.zeros(0, np.int64)
    found = [(none, none)]
    for u, w in near:
        for at in range(0, len(u), AT_ONCE):
            a, b = u[at : at + AT_ONCE], w[at : at + AT_ONCE]
            held = holds(a, b)
            found.append((a[held], b[held]))
    u, w = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((w, u))
    return u[order], w[order]
