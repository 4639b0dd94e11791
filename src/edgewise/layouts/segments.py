"""Segments of rows, such as the groundings of one rule head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segments:
    """Row r belongs to segment `ids[r]`; `width` is the common length where there is one."""

    count: int
    ids: Tensor
    width: int | None
    ordered: bool = True

    @property
    def trivial(self) -> bool:
        """One row each, in order."""
        return self.width == 1 and self.ordered

    @property
    def even(self) -> bool:
        """True if rows can be reshaped to (segment, position)."""
        return self.width is not None and self.ordered

    @cached_property
    def sizes(self) -> Tensor:
        return torch.bincount(self.ids, minlength=self.count)

    @cached_property
    def padded(self) -> Tensor:
        """Rows as (segment, position), -1 where a segment is shorter than the longest."""
        order = self.ids.argsort(stable=True)
        starts = self.sizes.cumsum(0) - self.sizes
        longest = int(self.sizes.max()) if self.count else 0
        table = torch.full((self.count, longest), -1, dtype=torch.int64, device=self.ids.device)
        ids = self.ids[order]
        table[ids, torch.arange(len(ids), device=ids.device) - starts[ids]] = order
        return table

    def to(self, device: torch.device | str) -> Segments:
        return Segments(self.count, self.ids.to(device), self.width, self.ordered)


def segments(ids: Tensor, count: int) -> Segments:
    """Segments from the segment of each row; every segment has a row.

    >>> segments(torch.tensor([0, 0, 1, 1]), 2).width
    2
    """
    ordered = bool((ids[1:] >= ids[:-1]).all())
    sizes = torch.bincount(ids, minlength=count)
    width = int(sizes[0]) if count and bool((sizes == sizes[0]).all()) else None
    return Segments(count, ids, width, ordered)
