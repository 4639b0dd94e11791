"""The conditions of a mask, read from data: a tree of leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from edgewise.ground.masks.cells import (
    Cells,
    Order,
    cells_of,
    rows_of,
)
from edgewise.ground.masks.classes import of_sides
from edgewise.ground.masks.leaves import Equal, Leaf, Runs
from edgewise.ground.masks.sides import Pairs, shown
from edgewise.ground.masks.split import Filter, Joined, Part, Positions, Sides, split
from edgewise.language import nodes
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints, ranges
from edgewise.plan.mask import Conjunction, Disjunction, Mask, Negation


@dataclass(frozen=True, eq=False)
class AllOf:
    """Pairs that all leaves and parts have."""

    leaves: tuple[Leaf, ...]
    parts: tuple[Read, ...]


@dataclass(frozen=True, eq=False)
class AnyOf:
    """Pairs that one of the parts has."""

    parts: tuple[Read, ...]


@dataclass(frozen=True, eq=False)
class NotIn:
    """Pairs that a part has not."""

    part: Read


Read = AllOf | AnyOf | NotIn


def read_mask(mask: Mask, pairs: Pairs) -> Read:
    """The tree with conditions read from data."""
    match mask:
        case Conjunction(conditions, parts):
            found: list[Leaf] = []
            for part in split(conditions, pairs.query, pairs.key):
                found += _leaves(part, pairs)
            return AllOf(tuple(found), tuple(read_mask(part, pairs) for part in parts))
        case Disjunction(parts, facts):
            every = [read_mask(part, pairs) for part in parts]
            stated = None if facts is None else pairs.data.relations.get(facts.relation)
            if facts is not None and stated is not None and stated.rows:
                every.append(read_mask(Conjunction((facts,)), pairs))
            return every[0] if len(every) == 1 else AnyOf(tuple(every))
        case Negation(part):
            return NotIn(read_mask(part, pairs))
    assert_never(mask)


def _leaves(part: Part, pairs: Pairs) -> list[Leaf]:
    match part:
        case Sides():
            return of_sides(part, pairs)
        case Joined(conditions, negated):
            rows = rows_of_pairs(*pairs.shape, *pairs.joined(conditions))
            return [Runs(shown(conditions), rows, negated)]
        case Positions(pattern):
            return [Runs(repr(pattern.pattern), pattern_rows(pattern, pairs))]
        case Filter():
            held = _filter(part, pairs)
            return [] if min(held.query.min(), held.key.min()) >= 0 else [held]
    assert_never(part)


def _filter(part: Filter, pairs: Pairs) -> Equal:
    """All queries and keys for which conditions hold are one class."""
    n, m = pairs.shape
    query, key = np.zeros(n, np.int64), np.zeros(m, np.int64)
    if part.query or part.key:
        side = pairs.of_query if part.query else pairs.of_key
        found = side(part.conditions, ())
        held = found.by_token(np.zeros(len(found.token), np.int64))
        query, key = (held, key) if part.query else (query, held)
    else:
        samples = pairs.holds(part.conditions)
        if samples is not None:
            own = pairs.queries.sample
            fine = np.zeros(n, bool) if own is None else np.isin(own, samples)
            query = np.where(fine, 0, -1)
    return Equal(shown(part.conditions), query, key)


def pattern_rows(atom: nodes.PatternAtom, pairs: Pairs) -> Rows:
    """The rows of a pattern on tokens as they are; in a ragged batch those of each sample."""
    forward = atom.terms[-2] == nodes.Variable(pairs.query)
    pattern = atom.pattern if forward else atom.pattern.T
    pattern = ~pattern if atom.negated else pattern
    n, m = pairs.shape
    if pairs.queries.sample is None:
        return pattern.rows(n, m)
    assert pairs.keys.sample is not None
    count = int(max(pairs.queries.sample.max(initial=-1), pairs.keys.sample.max(initial=-1))) + 1
    high = np.bincount(pairs.queries.sample, minlength=count)
    wide = np.bincount(pairs.keys.sample, minlength=count)
    top, left = np.cumsum(high) - high, np.cumsum(wide) - wide
    found = [np.zeros((3, 0), np.int64)]
    for (a, b), at in _by_shape(high, wide):
        if not a or not b:
            continue
        one = cells_of(pattern.rows(a, b), Order(np.arange(a), np.arange(b)))
        height = one.bottom - one.top
        row = ranges(one.top, height)
        start, stop = np.repeat(one.left, height), np.repeat(one.right, height)
        moved = [(row[None] + top[at][:, None]).ravel()]
        moved += [(x[None] + left[at][:, None]).ravel() for x in (start, stop)]
        found.append(np.stack(moved))
    row, start, stop = np.concatenate(found, 1)
    return rows_of(n, m, Cells(row, row + 1, start, stop))


def _by_shape(high: Ints, wide: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
    shapes, which = np.unique(np.stack([high, wide], 1), axis=0, return_inverse=True)
    for at, (a, b) in enumerate(shapes.tolist()):
        yield (a, b), np.flatnonzero(which.ravel() == at)
