"""Random keys per query."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.checks import check_memory, integer, required_seed, sequence_lengths
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.layouts import Rows, rows_of_keys, rows_of_trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class random_edges(Pattern):
    """`keys` distinct keys per query, sampled uniformly: {(i, j) : j ∈ Sᵢ}, |Sᵢ| = keys.

    Keys are sampled from all m: the graph of more tokens does not extend this one.

    >>> random_edges(2, seed=0).degrees(4).tolist()
    [2, 2, 2, 2]
    """

    keys: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        integer(self.keys, "keys")
        required_seed(self.seed, "random_edges")

    def count(self, n: int, m: int | None = None) -> int:
        n, m = sequence_lengths(n, m)
        return n * min(self.keys, m)

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        count, high = min(self.keys, m), last - first
        if count == m:
            return rows_of_trapezoids(high, m, trapezoids((0, high), 0, m))
        check_memory(8 * high * (count + 1), f"{count:,} random keys for {high:,} queries")
        keys = distinct(required_seed(self.seed, ""), np.arange(first, last), count, m)
        keys.sort(axis=1)  # row by row is faster than one sort of all
        return rows_of_keys(high, m, np.arange(high + 1) * count, keys.ravel())
