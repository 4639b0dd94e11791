"""Every token hears a few tokens chosen at random."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.checks import room, seeded, whole
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.graphs.sizes import sizes
from edgewise.layouts import Rows, pieces, rows_of_keys, rows_of_pieces


@dataclass(frozen=True, repr=False)
class random_edges(Pattern):
    """`keys` different keys per query, all equally likely: {(i, j) : j ∈ Sᵢ}, |Sᵢ| = keys.

    The keys are drawn from all m: more tokens are another graph, not the same one continued.

    >>> random_edges(2, seed=0).degrees(4).tolist()
    [2, 2, 2, 2]
    """

    keys: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        whole(self.keys, "keys")
        seeded(self.seed, "random_edges")

    def form(self, n: int, m: int) -> Rows:
        return self.stretch(n, m, 0, n)

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sizes(n, m)
        return n * min(self.keys, m)

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        count, high = min(self.keys, m), last - first
        if count == m:
            return rows_of_pieces(high, m, pieces((0, high), 0, m))
        room(8 * high * (count + 1), f"{count:,} random keys for {high:,} queries")
        keys = distinct(seeded(self.seed, ""), np.arange(first, last), count, m)
        keys.sort(axis=1)  # row by row is quicker than all at once
        return rows_of_keys(high, m, np.arange(high + 1) * count, keys.ravel())
