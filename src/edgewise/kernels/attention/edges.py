"""Edges as the CSR kernels read them: by rows, by columns, and how the two are numbered."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern


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


@lru_cache(maxsize=16)
def edges(graph: Pattern, n: int, m: int, device: str = "cpu") -> Edges:
    csr = graph.csr(n, m)
    order = torch.argsort(csr.index, stable=True)
    col_ptr = torch.zeros(m + 1, dtype=torch.int64)
    col_ptr[1:] = torch.bincount(csr.index, minlength=m).cumsum(0)
    small = torch.int32 if csr.index.numel() < 2**31 else torch.int64
    row = csr.row[order]
    parts = (csr.ptr.to(torch.int64), csr.index, col_ptr, row, order.to(small))
    return Edges(*(part.contiguous().to(device) for part in parts))
