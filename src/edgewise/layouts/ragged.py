"""Ragged lists concatenated in one array: a pointer array as in CSR, or the list of each row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.layouts.recorded import one_call

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def ranges(start: Ints, count: Ints, step: Ints | int = 1) -> Ints:
    """For each k the `count[k]` numbers `start[k], start[k] + step[k], ...`, end to end.

    >>> ranges(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    if len(count) and (count == count[0]).all():  # one table, written once
        place = np.arange(int(count[0]), dtype=np.int64)
        by = step if isinstance(step, int) else step[:, None]
        return (start[:, None] + place * by).reshape(-1)
    before = np.cumsum(count) - count
    place = np.arange(int(count.sum()), dtype=np.int64)
    if isinstance(step, int):
        return np.repeat(start - before * step, count) + place * step
    return np.repeat(start, count) + (place - np.repeat(before, count)) * np.repeat(step, count)


def pointer(count: Ints) -> Ints:
    """Where each list begins, and the end of the last.

    >>> pointer(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    out = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=out[1:])
    return out


def owners(ptr: Ints) -> Ints:
    """The list that each element belongs to.

    >>> owners(np.array([0, 2, 2, 5]))
    array([0, 0, 2, 2, 2])
    """
    return np.repeat(np.arange(len(ptr) - 1, dtype=np.int64), np.diff(ptr))


def starts_of_runs(key: Ints) -> Ints:
    """Where a sorted array changes.

    >>> starts_of_runs(np.array([4, 4, 7]))
    array([0, 2])
    """
    if not len(key):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))


def order_of(key: Ints, limit: int) -> Ints:
    """The stable order of integers below `limit`, in one pass over those of 16 bits.

    >>> order_of(np.array([4, 2, 4]), 5)
    array([1, 0, 2])
    """
    return np.argsort(key.astype(np.uint16) if limit <= 1 << 16 else key, kind="stable")


def distinct(key: Ints) -> Ints:
    """Sorted, each once; faster than `numpy.unique` on what is sorted already.

    >>> distinct(np.array([4, 2, 4]))
    array([2, 4])
    """
    if not (key[1:] > key[:-1]).all():
        key = np.sort(key)
        key = key[starts_of_runs(key)]
    return key


def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """The distinct rows in order, and for each row its index among them.

    Rows of small integers are encoded as one integer each, which sorts much faster.

    >>> rows, place = distinct_rows(np.array([[2, 5], [1, 9], [2, 5]]))
    >>> rows.tolist(), place.tolist()
    ([[1, 9], [2, 5]], [1, 0, 1])
    """
    low = table.min(axis=0, initial=0)
    spans = [int(span) for span in table.max(axis=0, initial=0) - low + 1]
    if math.prod(spans) >= 1 << 62:
        rows, place = np.unique(table, axis=0, return_inverse=True)
        return rows, place.ravel()
    code, weight = np.zeros(len(table), np.int64), 1
    for column, least, span in zip(table.T[::-1], low[::-1], spans[::-1], strict=True):
        if span > 1:
            code += (column - least) * weight
            weight *= span
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    return table[first], place


@dataclass(frozen=True, eq=False)
class Segments:
    """Rows in segments, such as the groundings of one rule head: row r belongs to segment `ids[r]`.

    `width` is the common length where there is one.
    """

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
        return self.ids.new_zeros(self.count).scatter_add_(0, self.ids, torch.ones_like(self.ids))

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


@one_call
def segments(ids: Tensor, count: int) -> Segments:
    """Segments from the segment of each row; every segment has a row.

    >>> segments(torch.tensor([0, 0, 1, 1]), 2).width
    2
    """
    labels = ids.cpu().numpy()
    ordered = bool((labels[1:] >= labels[:-1]).all())
    sizes = np.bincount(labels, minlength=count)
    width = int(sizes[0]) if count and bool((sizes == sizes[0]).all()) else None
    return Segments(count, ids, width, ordered)
