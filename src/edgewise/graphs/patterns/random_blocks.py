"""Random key blocks per query block."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.checks import check_memory, integer, required_seed
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.layouts import Rows, rows_of_trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class random_blocks(Pattern):
    """`keys` distinct key blocks per query block: {(i, j) : ⌊j / block⌋ ∈ S(⌊i / block⌋)}.

    Blocks are sampled from all of them: the graph of more tokens does not extend this one.

    >>> random_blocks(1, 2, seed=0).degrees(4).tolist()
    [2, 2, 2, 2]
    """

    keys: int
    block: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        integer(self.keys, "keys")
        integer(self.block, "block", 1)
        required_seed(self.seed, "random_blocks")

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        wide, high = -(-m // self.block), last - first
        count, blocks = min(self.keys, wide), np.arange(first // self.block, -(-last // self.block))
        if count == wide:
            return rows_of_trapezoids(high, m, trapezoids((0, high), 0, m))
        check_memory(32 * len(blocks) * (count + 1), f"{count:,} random blocks for {len(blocks):,}")
        chosen = distinct(required_seed(self.seed, ""), blocks, count, wide)
        row = np.repeat(blocks, count) * self.block - first
        column = chosen.ravel() * self.block
        return rows_of_trapezoids(
            high, m, trapezoids((row, row + self.block), column, column + self.block)
        )
