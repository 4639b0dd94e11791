"""Membership of (i, j) in rows, in torch operations that run under vmap, compile and on a GPU."""

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.rows import Rows


class Membership:
    """The test (i, j) ∈ rows, elementwise on integer tensors; its tables live on one device."""

    def __init__(self, rows: Rows, device: torch.device | str = "cpu") -> None:
        self.n, self.m = rows.n, rows.m
        self.stepped = bool((rows.step > 1).any())
        self.most = int(np.diff(rows.ptr).max(initial=0))
        self.slabs = len(rows.top) - 1
        names = ("top", "ptr", "start", "stop", "dstart", "dstop", "step")
        self.tables = {name: torch.tensor(getattr(rows, name), device=device) for name in names}

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        i, j = torch.broadcast_tensors(i, j)
        if self.most == 0:
            return torch.zeros_like(i, dtype=torch.bool)
        slab = self._slab(i)
        down = i - self.tables["top"][slab]
        first, last = self.tables["ptr"][slab], self.tables["ptr"][slab + 1]
        if self.stepped:
            hit = torch.zeros_like(i, dtype=torch.bool)
            for k in range(self.most):
                hit = hit | (self._in_trapezoid(first + k, down, j) & (first + k < last))
            return hit
        which = self._last_not_after(first, last, down, j)
        return self._in_trapezoid(which, down, j) & (which < last)

    def _slab(self, i: Tensor) -> Tensor:
        """The last slab whose top is not after i."""
        low, high = torch.zeros_like(i), torch.full_like(i, self.slabs)
        for _ in range(self.slabs.bit_length()):
            middle = (low + high) // 2
            right = self.tables["top"][middle] <= i
            low, high = torch.where(right, middle, low), torch.where(right, high, middle)
        return low.clamp(0, max(self.slabs - 1, 0))

    def _last_not_after(self, first: Tensor, last: Tensor, down: Tensor, j: Tensor) -> Tensor:
        """The last trapezoid that starts at or before j: without steps the only candidate."""
        low, high = first, last
        for _ in range(self.most.bit_length()):
            middle = (low + high) // 2
            right = (self._at("start", middle, down) <= j) & (middle < last)
            low, high = torch.where(right, middle, low), torch.where(right, high, middle)
        return low

    def _at(self, end: str, which: Tensor, down: Tensor) -> Tensor:
        which = which.clamp(max=len(self.tables["start"]) - 1)
        return self.tables[end][which] + self.tables["d" + end][which] * down

    def _in_trapezoid(self, which: Tensor, down: Tensor, j: Tensor) -> Tensor:
        start, stop = self._at("start", which, down), self._at("stop", which, down)
        step = self.tables["step"][which.clamp(max=len(self.tables["step"]) - 1)]
        return (start <= j) & (j < stop) & ((j - start) % step == 0)


SEARCHED = 16


class RowTable:
    """The same test for rows of at most `SEARCHED` intervals: a table of them instead of a search.

    A search nests its reads, which `torch.compile` multiplies out; this reads each interval once.
    """

    def __init__(self, rows: Rows, device: torch.device | str = "cpu") -> None:
        wide = rows.expand()
        count = np.diff(wide.ptr)
        shape = (rows.n, int(count.max(initial=0)))
        place = np.arange(len(wide.start)) - np.repeat(wide.ptr[:-1], count)
        self.most = shape[1]
        self.tables = []
        for values, empty in ((wide.start, 0), (wide.stop, 0), (wide.step, 1)):
            table = np.full(shape, empty, np.int64)
            table[wide.slab, place] = values
            self.tables.append(torch.from_numpy(table.ravel()).to(device))

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        first, last, every = self.tables
        hit = i != i
        for k in range(self.most):
            at = i * self.most + k
            start = first[at]
            hit = hit | ((start <= j) & (j < last[at]) & ((j - start) % every[at] == 0))
        return hit


def membership_test(rows: Rows, device: torch.device | str = "cpu") -> "Membership | RowTable":
    """The faster of the two tests for these rows."""
    small = int(np.diff(rows.ptr).max(initial=0)) <= SEARCHED
    return RowTable(rows, device) if small else Membership(rows, device)
