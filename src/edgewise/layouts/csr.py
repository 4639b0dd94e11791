"""CSR: the keys of each row, one after another."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import pointer
from edgewise.layouts.rows import Rows, rows_of_keys


@dataclass(frozen=True, eq=False)
class CSR:
    """Row i has the keys index[ptr[i]:ptr[i+1]], ascending."""

    n: int
    m: int
    ptr: Tensor
    index: Tensor

    @property
    def row(self) -> Tensor:
        """The row of each key."""
        return torch.repeat_interleave(torch.arange(self.n, dtype=torch.int32), self.ptr.diff())

    @property
    def T(self) -> "CSR":
        """The same pairs by columns; `order` of the sort is `argsort(index, stable=True)`."""
        order = torch.argsort(self.index, stable=True)
        count = torch.bincount(self.index, minlength=self.m).numpy()
        ptr = torch.from_numpy(pointer(count)).to(self.ptr.dtype)
        return CSR(self.m, self.n, ptr, self.row[order])

    def rows(self) -> Rows:
        ptr, index = self.ptr.numpy().astype(np.int64), self.index.numpy().astype(np.int64)
        return rows_of_keys(self.n, self.m, ptr, index)


def csr_of_rows(rows: Rows) -> CSR:
    """Every pair of the rows; int32, as kernels read it."""
    ptr = torch.from_numpy(pointer(rows.degrees()))
    small = torch.int32 if int(ptr[-1]) < 2**31 else torch.int64
    return CSR(rows.n, rows.m, ptr.to(small), rows.edges()[1].to(torch.int32))
