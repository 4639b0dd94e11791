"""Edges as the CSR kernels read them: by rows, by columns, and how the two are numbered."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.pieces import Pieces, cut

SHARE = 32  # a row with more than this part of all edges is cut
LEAST = 1024  # and none with fewer edges


@dataclass(frozen=True, eq=False)
class Edges:
    """Row i has the keys index[ptr[i]:ptr[i+1]]; column j the edges edge[col_ptr[j]:col_ptr[j+1]],
    which come from the rows col_row there."""

    ptr: Tensor
    index: Tensor
    col_ptr: Tensor
    col_row: Tensor
    edge: Tensor

    @property
    def count(self) -> int:
        return len(self.index)

    @cached_property
    def rows(self) -> Pieces:
        """As threads of a CPU share them."""
        return cut(self.ptr.numpy(), max(self.count // SHARE, LEAST))

    @cached_property
    def turn(self) -> Tensor:
        """The place of each edge among those of columns."""
        return torch.empty_like(self.edge).index_put_(
            (self.edge.long(),), torch.arange(self.count, dtype=self.edge.dtype)
        )

    @cached_property
    def columns(self) -> Pieces:
        return cut(self.col_ptr.numpy(), max(self.count // SHARE, LEAST))


@lru_cache(maxsize=16)
def edges(graph: Pattern, n: int, m: int, device: str = "cpu") -> Edges:
    if device != "cpu":
        here = edges(graph, n, m)
        parts = (here.ptr, here.index, here.col_ptr, here.col_row, here.edge)
        return Edges(*(part.to(device) for part in parts))
    csr = graph.csr(n, m)
    order = torch.argsort(csr.index, stable=True)
    col_ptr = torch.zeros(m + 1, dtype=torch.int64)
    col_ptr[1:] = torch.bincount(csr.index, minlength=m).cumsum(0)
    small = torch.int32 if csr.index.numel() < 2**31 else torch.int64
    row = csr.row[order]
    parts = (csr.ptr.to(torch.int64), csr.index, col_ptr, row, order.to(small))
    return Edges(*(part.contiguous() for part in parts))
