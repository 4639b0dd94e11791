"""Comparisons that come apart: `time(I) - time(J) <= 3 * reach(J)` compares a number of the query
with one of the key, `time(I) <= 3 * reach(J) + time(J)`, so its keys are an interval.

A comparison of integer expressions is written f(query) + g(key) ∘ 0, for any f and g.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from edgewise.ground.formulas import numbers
from edgewise.ground.index import STRINGS
from edgewise.ground.masks.comparisons import (
    Compared,
    NotSeparate,
    TestReader,
    Tree,
    is_name,
    minus,
    names_in,
    times,
)
from edgewise.ground.masks.leaves import Equal, Leaf
from edgewise.ground.masks.ranges import interval
from edgewise.ground.masks.tokens import Attributes
from edgewise.layouts.ragged import Ints
from edgewise.plan.mask import Condition

Numbers = Any  # int64, or Python's integers where those could overflow
Side = Literal["left", "right"]
BOTH: tuple[Side, Side] = ("left", "right")
ENDS: dict[str, Side] = {"<=": "left", "<": "right", ">=": "right", ">": "left"}


@dataclass(frozen=True, eq=False)
class SeparatedSides:
    """Attributes of queries and of keys, one row for each token, that comparisons read."""

    name: str
    query: Attributes
    key: Attributes

    def leaves(self, tests: Sequence[Condition]) -> list[Leaf]:
        """What tests of both are on data; raises `NotSeparate` where one is something else."""
        reader = TestReader(frozenset(self.query.columns) | frozenset(self.key.columns))
        reader.read(tests)
        sides = []
        for side in (self.query, self.key):
            own = side.columns.keys()
            if any((side.columns[name] >= STRINGS).any() for name in reader.integers & own):
                raise NotSeparate
            if len(side.integers(tuple(reader.numbers & own), 0).token) < len(side.token):
                raise NotSeparate
            sides.append(side.integers(tuple(reader.naturals & own), 0))
        some = SeparatedSides(self.name, *sides)
        return [leaf for one in reader.found for leaf in some._leaves(one)]

    def _leaves(self, one: Compared) -> list[Leaf]:
        try:
            query, key = self._apart(minus(one.left, one.right))
            return [self._compared(one.sign, query, times(-1, key))]
        except NotSeparate:
            pass
        match one.left, one.sign, one.right:
            case ("abs", inner), ("<=" | "<") as sign, right:
                ends = (minus(inner, right), minus(times(-1, inner), right))
                return [leaf for end in ends for leaf in self._leaves(Compared(sign, end, 0))]
            case ("abs", inner), (">=" | ">") as sign, right:
                return [self._outside(sign, inner, right)]
            case ("%", inner, int(step)), ("==" | "!=") as sign, int(rest) if 0 <= rest < step:
                query, key = self._apart(minus(inner, rest))
                return [self._compared(sign, ("%", query, step), ("%", times(-1, key), step))]
            case ("//", inner, int(step)), sign, right if step > 0:
                return self._rounded(sign, inner, step, right)
        raise NotSeparate

    def _rounded(self, sign: str, inner: Tree, step: int, right: Tree) -> list[Leaf]:
        """inner // step ∘ right, as comparisons of inner."""
        least = minus(inner, times(step, right))
        most = minus(least, step - 1)
        ends = {"<=": [("<=", most)], "<": [("<", least)], ">=": [(">=", least)],
                ">": [(">", most)], "==": [(">=", least), ("<=", most)]}  # fmt: skip
        if sign not in ends:
            raise NotSeparate
        return [leaf for s, tree in ends[sign] for leaf in self._leaves(Compared(s, tree, 0))]

    def _apart(self, tree: Tree) -> tuple[Tree, Tree]:
        """A tree as a sum of one of the query and one of the key."""
        query: Tree = 0
        key: Tree = 0
        waiting: list[tuple[int, Tree]] = [(1, tree)]
        while waiting:
            factor, one = waiting.pop()
            names = names_in(one)
            if names <= self.query.columns.keys():
                query = ("+", query, times(factor, one))
                continue
            if names <= self.key.columns.keys():
                key = ("+", key, times(factor, one))
                continue
            match one:
                case ("+", a, b):
                    waiting += [(factor, a), (factor, b)]
                case ("-", a, b):
                    waiting += [(factor, a), (-factor, b)]
                case ("*", int(c), a) | ("*", a, int(c)):
                    waiting.append((factor * c, a))
                case _:
                    raise NotSeparate
        return query, key

    def _compared(self, sign: str, query: Tree, key: Tree) -> Leaf:
        """A number of the query ∘ one of the key."""
        left, (u,) = _evaluated(self.query, query)
        right, (y,) = _evaluated(self.key, key)
        values, rank = np.unique(y, return_inverse=True)
        if sign == "==":
            at = np.minimum(np.searchsorted(values, u), max(len(values) - 1, 0))
            same = values[at] == u if len(values) else np.zeros(len(u), bool)
            own = left.by_token(np.where(same, at, -1))
            return Equal(self.name, own, right.by_token(rank.ravel()))
        none, end = np.zeros(len(u), np.int64), np.full(len(u), len(values))
        if sign == "!=":
            first, last = (_places(values, u, side) for side in BOTH)
            return self._between(left, right, [(none, first), (last, end)], rank)
        at = _places(values, u, ENDS[sign])
        return self._between(left, right, [(at, end) if "<" in sign else (none, at)], rank)

    def _outside(self, sign: str, inner: Tree, radius: Tree) -> Leaf:
        """|query + key| > radius, a number of the query."""
        if not names_in(radius) <= self.query.columns.keys():
            raise NotSeparate
        query, key = self._apart(inner)
        left, (u, r) = _evaluated(self.query, query, radius)
        right, (y,) = _evaluated(self.key, times(-1, key))
        values, rank = np.unique(y, return_inverse=True)
        below: Side = "left" if sign == ">" else "right"
        above: Side = "right" if sign == ">" else "left"
        first = _places(values, u - r, below)
        last = _places(values, u + r, above)
        none, end = np.zeros(len(u), np.int64), np.full(len(u), len(values))
        return self._between(left, right, [(none, first), (last, end)], rank)

    def _between(
        self, left: Attributes, right: Attributes, runs: list[tuple[Ints, Ints]], rank: Ints
    ) -> Leaf:
        query = np.concatenate([left.token] * len(runs))
        start, stop = (np.concatenate([run[end] for run in runs]) for end in (0, 1))
        own = right.by_token(rank.ravel())
        return interval(self.name, left.count, (query, start, stop), own)


def _places(values: Numbers, wanted: Numbers, side: Side) -> Ints:
    return np.asarray(np.searchsorted(values, wanted, side=side), np.int64)


def _evaluated(found: Attributes, *trees: Tree) -> tuple[Attributes, list[Numbers]]:
    """The rows in which trees have values, and these."""
    names = sorted(set().union(*map(names_in, trees)))
    columns = [torch.from_numpy(found.columns[name]) for name in names]
    numbered = [_numbered(tree, names) for tree in trees]
    each = [numbers(tree, columns, len(found.token)) for tree in numbered]
    fine = np.logical_and.reduce([one[1] for one in each])
    return found.take(fine), [value[fine] for value, _ in each]


def _numbered(tree: Tree, names: list[str]) -> Tree:
    """A tree whose variables are terms of a formula."""
    if isinstance(tree, int):
        return tree
    if is_name(tree):
        return ("term", names.index(tree[1]))
    return (tree[0], *(_numbered(part, names) for part in tree[1:]))
