"""Attention to ancestors in a forest: shared prefixes, speculative decoding."""

from dataclasses import dataclass

import numpy as np

from edgewise.errors import caller
from edgewise.graphs.checks import check_length, check_memory
from edgewise.graphs.errors import EdgeOutOfRange, TreeCycle
from edgewise.graphs.int_array import IntArray, Integers
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, joined, rows_of_trapezoids, trapezoids
from edgewise.layouts.ragged import Ints


@dataclass(frozen=True, repr=False)
class tree(Pattern):
    """A token and its ancestors: {(i, j) : j = i, or j = parent(...parent(i))}; a root has -1.

    >>> tree([-1, 0, 0, 2]).edges(4).T.tolist()
    [[0, 0], [1, 0], [1, 1], [2, 0], [2, 2], [3, 0], [3, 2], [3, 3]]
    """

    parents: Integers

    def __post_init__(self) -> None:
        parents = IntArray(self.parents, "parents", axes=1)
        check_forest(parents.array, "parents")
        object.__setattr__(self, "parents", parents)

    def compute_rows(self, n: int, m: int) -> Rows:
        assert isinstance(self.parents, IntArray)
        parent = self.parents.array
        check_length(len(parent), n, m, "tree")
        # A chain is a run of tokens each of which is the parent of the next; the ancestors of a
        # token in one chain are an interval.
        token = np.arange(n)
        opens = np.append(True, parent[1:] != token[:-1]) if n else np.zeros(0, bool)
        first = np.flatnonzero(opens)
        last = np.append(first[1:], n) if n else first
        chain = np.cumsum(opens) - 1
        parts = [trapezoids((first, last), first, first + 1, slope=(0, 1))]
        _check_chains(chain, parent[first])
        which, above = np.arange(len(first)), parent[first]
        while True:
            some = above >= 0
            which, above = which[some], above[some]
            if not len(which):
                return rows_of_trapezoids(n, m, joined(*parts))
            head = first[chain[above]]
            parts.append(trapezoids((first[which], last[which]), head, above + 1))
            above = parent[head]


def _check_chains(chain: Ints, above: Ints) -> None:
    """Each chain is listed once for every chain above it: check that this fits into memory."""
    up = np.append(np.where(above >= 0, chain[above], len(above)), len(above))
    depth = np.append(np.ones(len(above), np.int64), 0)
    while (up < len(above)).any():
        depth, up = depth + depth[up], up[up]
    check_memory(16 * int(depth.sum()), f"the ancestors of {len(chain):,} tokens")


def check_forest(parent: Ints, name: str) -> None:
    """Every token must reach a root by its parents."""
    n = len(parent)
    if n and (parent.min() < -1 or parent.max() >= n):
        bad = int(np.argmax((parent < -1) | (parent >= n)))
        raise EdgeOutOfRange(
            f"`{name}[{bad}]` is {int(parent[bad])}; there are {n} tokens",
            caller(),
            f"give -1 for a root, or an index from 0 to {n - 1}",
        )
    up = np.append(parent, -1)  # index -1 is above every root
    for _ in range(max(n, 1).bit_length()):
        up = up[up]
    if (up >= 0).any():
        bad = int(np.argmax(up >= 0))
        raise TreeCycle(
            f"token {bad} is on a cycle of `{name}`, or leads to one",
            caller(),
            "break the cycle: a root has -1",
        )
