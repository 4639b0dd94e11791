"""The pairs of attention along edges, as kernels over edges read them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from edgewise.graphs import from_edges
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.edges import EdgeIndex, edge_index
from edgewise.layouts import Rows
from edgewise.layouts.ragged import distinct
from edgewise.layouts.recorded import one_call


@dataclass(frozen=True, repr=False, eq=False)
class sorted_pairs(Pattern):
    """Pairs of n queries and m keys that kernels over edges read as they are: each once, sorted."""

    i: Tensor
    j: Tensor
    n: int
    m: int

    @cached_property
    def plain(self) -> Pattern:
        """The same pairs for everything else."""
        return from_edges(torch.stack([self.i, self.j]), shape=(self.n, self.m))

    def compute_rows(self, n: int, m: int) -> Rows:
        return self.plain.rows(n, m)

    def degrees(self, n: int, m: int | None = None) -> Tensor:
        return torch.bincount(self.i, minlength=self.n)

    def __repr__(self) -> str:
        return repr(self.plain)


@one_call
def sorted_of(i: Tensor, j: Tensor, n: int, m: int) -> sorted_pairs:
    """The pairs that are inside of n×m."""
    inside = (i >= 0) & (i < n) & (j >= 0) & (j < m)
    codes = i * m + j if bool(inside.all()) else i[inside] * m + j[inside]
    codes = torch.from_numpy(distinct(codes.numpy()))
    return sorted_pairs(codes // m, codes % m, n, m)


@one_call
def attends(pattern: Pattern, n: int, m: int) -> Tensor:
    """Which queries attend to any key."""
    return torch.as_tensor(pattern.degrees(n, m)) > 0


@one_call
def pairs_of(pattern: Pattern, n: int, m: int) -> EdgeIndex:
    """The keys of each query, in the layout of kernels."""
    if isinstance(pattern, sorted_pairs):
        return edge_index(pattern.i, pattern.j, n, m)
    csr = pattern.csr(n, m)
    return edge_index(csr.row.long(), csr.index.long(), n, m)
