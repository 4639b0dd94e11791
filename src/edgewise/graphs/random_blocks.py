"""Every block of tokens hears a few blocks chosen at random."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.errors import seeded, whole
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.layouts import Rows, pieces, rows_of_pieces


@dataclass(frozen=True, repr=False)
class random_blocks(Pattern):
    """`keys` different key blocks per query block: {(i, j) : ⌊j / block⌋ ∈ S(⌊i / block⌋)}.

    >>> random_blocks(1, 2, seed=0).degrees(4).tolist()
    [2, 2, 2, 2]
    """

    keys: int
    block: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        whole(self.keys, "keys")
        whole(self.block, "block", 1)
        seeded(self.seed, "random_blocks")

    def form(self, n: int, m: int) -> Rows:
        high, wide = -(-n // self.block), -(-m // self.block)
        chosen = distinct(seeded(self.seed, ""), np.arange(high), min(self.keys, wide), wide)
        row = np.repeat(np.arange(high), chosen.shape[1]) * self.block
        column = chosen.ravel() * self.block
        return rows_of_pieces(n, m, pieces((row, row + self.block), column, column + self.block))
