"""Patterns whose pairs are known block by block."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Blocks, Rows
from edgewise.layouts.bitmap import Bitmap
from edgewise.layouts.boxes import BoxCells


class ByBlocks(Pattern):
    """A pattern with a `bitmap`: kernels read its blocks, rows are made on demand."""

    def compute_rows(self, n: int, m: int) -> Rows:
        return self._cells.rows()

    def count(self, n: int, m: int | None = None) -> int:
        return self._cells.count()

    def degrees(self, n: int, m: int | None = None) -> Tensor:
        return torch.from_numpy(self._cells.degrees())

    def blocks(self, n: int, m: int | None = None, *, block: int = 128) -> Blocks:
        return self._cells.blocks(block) if block % 32 == 0 else super().blocks(n, m, block=block)

    @property
    def _cells(self) -> Bitmap | BoxCells:
        assert self.bitmap is not None
        return self.bitmap
