"""Every block of tokens hears a few blocks chosen at random."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.checks import room, seeded, whole
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.layouts import Rows, pieces, rows_of_pieces


@dataclass(frozen=True, repr=False)
class random_blocks(Pattern):
    """`keys` different key blocks per query block: {(i, j) : ⌊j / block⌋ ∈ S(⌊i / block⌋)}.

    The blocks are drawn from all of them: more tokens are another graph.

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
        return self.stretch(n, m, 0, n)

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        wide, high = -(-m // self.block), last - first
        count, blocks = min(self.keys, wide), np.arange(first // self.block, -(-last // self.block))
        if count == wide:
            return rows_of_pieces(high, m, pieces((0, high), 0, m))
        room(32 * len(blocks) * (count + 1), f"{count:,} random blocks for {len(blocks):,}")
        chosen = distinct(seeded(self.seed, ""), blocks, count, wide)
        row = np.repeat(blocks, count) * self.block - first
        column = chosen.ravel() * self.block
        return rows_of_pieces(high, m, pieces((row, row + self.block), column, column + self.block))
