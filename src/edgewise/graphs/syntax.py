"""Words near each other in a dependency tree."""

from dataclasses import dataclass

import numpy as np

from edgewise.graphs.errors import whole
from edgewise.graphs.numbers import Integers, Numbers
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.tree import check_forest, check_length
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints, distinct, pointer, ranges


@dataclass(frozen=True, repr=False)
class syntax(Pattern):
    """Words at most `steps` arcs apart, in either direction: {(i, j) : distance(i, j) ≤ steps};
    heads[i] is the head of word i, -1 for a root.

    >>> syntax([1, -1, 1], 1).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 1], [2, 2]]
    """

    heads: Integers
    steps: int = 1

    def __post_init__(self) -> None:
        heads = Numbers(self.heads, "heads")
        check_forest(heads.array, "heads")
        whole(self.steps, "steps")
        object.__setattr__(self, "heads", heads)

    def form(self, n: int, m: int) -> Rows:
        assert isinstance(self.heads, Numbers)
        head = self.heads.array
        check_length(len(head), n, m, "syntax")
        child = np.flatnonzero(head >= 0)
        near, far = np.concatenate([child, head[child]]), np.concatenate([head[child], child])
        far = far[np.argsort(near, kind="stable")]
        ptr = pointer(np.bincount(near, minlength=n))
        reached = np.arange(n) * (max(n, 1) + 1)
        for _ in range(self.steps):
            longer = distinct(np.concatenate([reached, _next(reached, ptr, far, n)]))
            if len(longer) == len(reached):
                break
            reached = longer
        return rows_of_pairs(n, m, reached // max(n, 1), reached % max(n, 1))


def _next(reached: Ints, ptr: Ints, far: Ints, n: int) -> Ints:
    """Pairs one arc further."""
    i, j = np.divmod(reached, max(n, 1))
    count = ptr[j + 1] - ptr[j]
    return np.repeat(i, count) * n + far[ranges(ptr[j], count)]
