"""Blocks: which block×block tiles of the matrix hold pairs, and which hold nothing else."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Blocks:
    """The non-empty blocks as CSR over block rows.

    Block row r has the key blocks index[ptr[r]:ptr[r+1]], ascending; `full` says of each whether
    all its block·block pairs are there (a block that sticks out of the matrix is never full).
    """

    n: int
    m: int
    block: int
    ptr: Tensor
    index: Tensor
    full: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """How many block rows and block columns there are."""
        return -(-self.n // self.block), -(-self.m // self.block)

    @property
    def count(self) -> int:
        return len(self.index)

    @property
    def density(self) -> float:
        rows, columns = self.shape
        return self.count / max(rows * columns, 1)

    @cached_property
    def row(self) -> Tensor:
        """The block row of each block."""
        rows = torch.arange(len(self.ptr) - 1, dtype=torch.int32)
        return torch.repeat_interleave(rows, self.ptr.diff())

    @cached_property
    def T(self) -> "Blocks":
        """The same blocks by columns."""
        order = torch.argsort(self.index, stable=True)
        count = torch.bincount(self.index, minlength=self.shape[1])
        ptr = torch.zeros(len(count) + 1, dtype=torch.int32)
        ptr[1:] = count.cumsum(0)
        return Blocks(self.m, self.n, self.block, ptr, self.row[order], self.full[order])

    def dense(self) -> Tensor:
        """Per block 0 (empty), 1 (partial) or 2 (full), as a small int8 matrix."""
        out = torch.zeros(self.shape, dtype=torch.int8)
        out[self.row.long(), self.index.long()] = self.full.to(torch.int8) + 1
        return out

    def to(self, device: torch.device | str) -> "Blocks":
        parts = (part.to(device) for part in (self.ptr, self.index, self.full))
        return Blocks(self.n, self.m, self.block, *parts)
