"""Attention along dependency trees."""

from dataclasses import dataclass

import numpy as np

from edgewise.graphs.checks import check_length, check_memory, integer, sequence_lengths
from edgewise.graphs.int_array import IntArray, Integers
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.tree import check_forest
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints, pointer, ranges


@dataclass(frozen=True, repr=False)
class syntax(Pattern):
    """Words at most `steps` arcs apart, in either direction: {(i, j) : distance(i, j) ≤ steps};
    heads[i] is the syntactic head of word i, -1 for a root.

    >>> syntax([1, -1, 1], 1).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 1], [2, 2]]
    """

    heads: Integers
    steps: int = 1

    def __post_init__(self) -> None:
        heads = IntArray(self.heads, "heads", axes=1)
        check_forest(heads.array, "heads")
        integer(self.steps, "steps")
        object.__setattr__(self, "heads", heads)

    def compute_rows(self, n: int, m: int) -> Rows:
        count = self.count(n, m)
        check_memory(8 * count, f"a list of {count:,} pairs")
        head = self._heads(n, m)
        child = np.flatnonzero(head >= 0)
        near, far = np.concatenate([child, head[child]]), np.concatenate([head[child], child])
        far = far[np.argsort(near, kind="stable")]
        ptr = pointer(np.bincount(near, minlength=n))
        # A forest has one path between two words, so a step that does not go back is always new.
        i, before, at = np.arange(n), np.full(n, -1), np.arange(n)
        found = [i * n + at]
        for _ in range(self.steps):
            degree = ptr[at + 1] - ptr[at]
            further = far[ranges(ptr[at], degree)]
            i, before, at = np.repeat(i, degree), np.repeat(before, degree), np.repeat(at, degree)
            on = further != before
            i, before, at = i[on], at[on], further[on]
            if not len(i):
                break
            found.append(i * n + at)
        reached = np.concatenate(found)
        return rows_of_pairs(n, m, reached // max(n, 1), reached % max(n, 1))

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs, from the number of words at each distance below and above a word."""
        head = self._heads(*sequence_lengths(n, m))
        child = np.flatnonzero(head >= 0)
        below, all_around = [np.ones(n, np.int64)], [np.ones(n, np.int64)]
        total = n
        for step in range(1, self.steps + 1):
            down = np.zeros(n, np.int64)
            np.add.at(down, head[child], below[-1][child])
            around = down.copy()
            around[child] += all_around[-1][head[child]]
            if step > 1:
                around[child] -= below[-2][child]
            if not around.any():
                break
            total += int(around.sum())
            below, all_around = [below[-1], down], [around]
        return total

    def _heads(self, n: int, m: int) -> Ints:
        assert isinstance(self.heads, IntArray)
        check_length(len(self.heads), n, m, "syntax")
        return self.heads.array
