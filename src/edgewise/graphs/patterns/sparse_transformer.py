"""The Sparse Transformer (Child et al. 2019, arXiv 1904.10509)."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from edgewise.graphs.checks import check_memory, integer, one_of
from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.blocks import blocks
from edgewise.graphs.patterns.causal import causal
from edgewise.graphs.patterns.fixed import fixed
from edgewise.graphs.patterns.strided import strided
from edgewise.graphs.patterns.window import window
from edgewise.layouts import Rows, joined, rows_of_trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class sparse_transformer(Pattern):
    """Both factorised patterns as one set, with l = `step` and c = `width`:

    strided: {(i, j) : j ≤ i, i - j ≤ l or (i - j) mod l = 0}
    fixed:   {(i, j) : j ≤ i, ⌊i / l⌋ = ⌊j / l⌋ or j mod l ≥ l - c}

    `halves()` has the two as a pattern per head.

    >>> sparse_transformer(2).edges(4).T.tolist()[-3:]
    [[3, 1], [3, 2], [3, 3]]
    """

    ignores_lengths = True

    step: int
    kind: str = "strided"
    width: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        integer(self.step, "step", 1)
        one_of(self.kind, "kind", ("strided", "fixed"))
        fixed(self.step, self.width)

    def halves(self) -> per_head:
        """The local and the strided or fixed half, for alternating heads.

        >>> sparse_transformer(4).halves()
        per_head(causal() & window(4), causal() & strided(4))
        """
        if self.kind == "strided":
            return per_head(causal() & window(self.step), causal() & strided(self.step))
        return per_head(causal() & blocks(self.step), causal() & fixed(self.step, self.width))

    def definition(self) -> Pattern:
        near, far = self.halves().patterns
        return near | far

    def compute_rows(self, n: int, m: int) -> Rows:
        if self.kind == "strided" or self.width == self.step:
            return self.definition().rows(n, m)
        most = min(self.step, m)
        columns = np.arange(min(self.step - self.width, most), most)
        blocks_high = -(-n // self.step)
        check_memory(
            32 * blocks_high * (len(columns) + 1), f"{n:,} tokens in blocks of {self.step}"
        )
        # Before its own block of l rows the keys of a token do not depend on its position in it.
        step, first = self.step, np.arange(0, n, self.step)
        near = trapezoids((first, first + step), first, first + 1, slope=(0, 1))
        row, residue = np.meshgrid(first[1:], columns, indexing="ij")
        row, residue = row.ravel(), residue.ravel()
        far = trapezoids((row, row + step), residue, np.minimum(row, m), step=step)
        return rows_of_trapezoids(n, m, joined(near, far[far.start < far.stop]))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.definition().mask(i, j, n, m)
