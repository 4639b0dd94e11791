"""The Sparse Transformer (Child et al. 2019, arXiv 1904.10509)."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from edgewise.graphs.blocks import blocks
from edgewise.graphs.causal import causal
from edgewise.graphs.checks import one_of, room, whole
from edgewise.graphs.families import per_head
from edgewise.graphs.fixed import fixed
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.strided import strided
from edgewise.graphs.window import window
from edgewise.layouts import Rows, joined, pieces, rows_of_pieces


@dataclass(frozen=True, repr=False)
class sparse_transformer(Pattern):
    """Both factorised halves merged into one set, with l = `step` and c = `width`:

    strided: {(i, j) : j ≤ i, i - j ≤ l or (i - j) mod l = 0}
    fixed:   {(i, j) : j ≤ i, ⌊i / l⌋ = ⌊j / l⌋ or j mod l ≥ l - c}

    `halves()` gives the two as a pattern per head.

    >>> sparse_transformer(2).edges(4).T.tolist()[-3:]
    [[3, 1], [3, 2], [3, 3]]
    """

    step: int
    kind: str = "strided"
    width: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        whole(self.step, "step", 1)
        one_of(self.kind, "kind", ("strided", "fixed"))
        fixed(self.step, self.width)

    def halves(self) -> per_head:
        """The near and the far half, for heads that take turns."""
        if self.kind == "strided":
            return per_head(causal() & window(self.step), causal() & strided(self.step))
        return per_head(causal() & blocks(self.step), causal() & fixed(self.step, self.width))

    def meaning(self) -> Pattern:
        near, far = self.halves().patterns
        return near | far

    def form(self, n: int, m: int) -> Rows:
        if self.kind == "strided" or self.width == self.step:
            return self.meaning().rows(n, m)
        most = min(self.step, m)
        columns = np.arange(min(self.step - self.width, most), most)
        stretches = -(-n // self.step)
        room(32 * stretches * (len(columns) + 1), f"{n:,} tokens in stretches of {self.step}")
        # Before its own stretch of l rows a token hears whole stretches only: nothing moves there.
        step, first = self.step, np.arange(0, n, self.step)
        near = pieces((first, first + step), first, first + 1, slope=(0, 1))
        row, residue = np.meshgrid(first[1:], columns, indexing="ij")
        row, residue = row.ravel(), residue.ravel()
        far = pieces((row, row + step), residue, np.minimum(row, m), step=step)
        return rows_of_pieces(n, m, joined(near, far[far.start < far.stop]))

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return self.meaning().holds(i, j, n, m)
