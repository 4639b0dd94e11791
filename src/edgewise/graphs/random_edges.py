"""Every token hears a few tokens chosen at random."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.errors import seeded, whole
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.layouts import Rows, rows_of_pairs


@dataclass(frozen=True, repr=False)
class random_edges(Pattern):
    """`keys` different keys per query, all equally likely: {(i, j) : j ∈ Sᵢ}, |Sᵢ| = keys.

    >>> random_edges(2, seed=0).degrees(4).tolist()
    [2, 2, 2, 2]
    """

    keys: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        whole(self.keys, "keys")
        seeded(self.seed, "random_edges")

    def form(self, n: int, m: int) -> Rows:
        keys = distinct(seeded(self.seed, ""), np.arange(n), min(self.keys, m), m)
        i = np.repeat(np.arange(n), keys.shape[1])
        return rows_of_pairs(n, m, i, keys.ravel())
