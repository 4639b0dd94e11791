"""CSR: the keys of all rows, concatenated."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, pointer, ranges
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


def _keys(wide: Rows, ends: Ints) -> Ints:
    """The keys of runs with step 1, `ends` the cumulated sizes."""
    count = len(wide.start)
    if ends[-1] > 2 * count:
        return ranges(wide.start, np.diff(ends))
    if ends[-1] == count:
        return wide.start
    size = np.diff(ends)  # most are one key
    out, long = np.repeat(wide.start, size), np.flatnonzero(size > 1)
    out[ranges(ends[long], size[long])] += ranges(np.zeros(len(long), np.int64), size[long])
    return out


def csr_of_rows(rows: Rows) -> CSR:
    """Every pair of the rows; int32, as kernels read it."""
    if (rows.step > 1).any():
        ptr, keys = pointer(rows.degrees()), rows.edges()[1].numpy()
    else:
        wide = rows.expand()
        ends = pointer(wide.stop - wide.start)
        ptr, keys = ends[wide.ptr], _keys(wide, ends)
    small = np.int32 if ptr[-1] < 2**31 else np.int64
    index = torch.from_numpy(keys.astype(np.int32))
    return CSR(rows.n, rows.m, torch.from_numpy(ptr.astype(small)), index)
