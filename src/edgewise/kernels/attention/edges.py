"""Edges as the CSR kernels read them: by rows, by columns, and how the two are numbered."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from edgewise.graphs.cache import cached
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


@cached
def edges(graph: Pattern, n: int, m: int, device: str) -> Edges:
    """On a GPU they are sorted there: on its host that takes a hundred times as long."""
    csr = graph.csr(n, m)
    ptr, index = csr.ptr.to(device).to(torch.int64), csr.index.to(device)
    sizes, count = ptr.diff(), len(index)
    row = torch.arange(n, dtype=torch.int32, device=device)
    row = torch.repeat_interleave(row, sizes, output_size=count)
    order = torch.argsort(index, stable=True)
    ends = torch.arange(m + 1, dtype=index.dtype, device=device)
    col_ptr = torch.searchsorted(index[order], ends)
    small = torch.int32 if count < 2**31 else torch.int64
    return Edges(ptr, index, col_ptr, row[order], order.to(small))
