"""Rows by sample: where the rows of each sample lie, and those of a batch of some samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgewise.layouts.ragged import Ints, pointer, ranges

BLOCKS = 64  # of an axis, at most

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class SampleAxis:
    """Rows in blocks, in each of which samples follow one another.

    Block b has `counts[b, s]` rows of sample s. There is one block where the sample is the first
    key, and more where rows are sorted by the member of a family, or lists are concatenated.
    """

    counts: Ints

    @cached_property
    def starts(self) -> Ints:
        return pointer(self.counts.reshape(-1))[:-1].reshape(self.counts.shape)

    @cached_property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def blocks(self) -> int:
        return len(self.counts)

    @cached_property
    def mark(self) -> bytes:
        """What equal axes have in common."""
        return self.counts.tobytes()

    @cached_property
    def ends(self) -> Tensor:
        """The end of each part, in order."""
        return torch.from_numpy((self.starts + self.counts).reshape(-1))

    def parts_of(self, rows: Tensor) -> Tensor:
        """The part, block · samples + sample, in which each row lies."""
        return torch.searchsorted(self.ends, rows, right=True)


def concatenated(axes: Iterable[SampleAxis]) -> SampleAxis:
    """The rows of some axes, one after another."""
    return SampleAxis(np.concatenate([axis.counts for axis in axes]))


def axis_of(owners: Ints, samples: int) -> SampleAxis | None:
    """The axis of rows that belong to these samples; a block ends where the samples start again.

    >>> axis_of(np.array([0, 0, 2, 0, 1]), 3).counts.tolist()
    [[2, 0, 1], [1, 1, 0]]
    """
    falls = owners[1:] < owners[:-1]
    blocks = 1 + int(np.count_nonzero(falls))
    if blocks > BLOCKS:
        return None
    block = np.concatenate([[0], np.cumsum(falls)]) if len(owners) else owners
    counts = np.bincount(block * samples + owners, minlength=blocks * samples)
    return SampleAxis(counts.reshape(blocks, samples))


@dataclass(frozen=True, eq=False)
class SomeSamples:
    """A batch of samples by their numbers, in this order; one may be there several times."""

    numbers: Ints
    found: dict[Any, Any] = field(default_factory=dict)

    def counts(self, axis: SampleAxis) -> Ints:
        """The rows of each part of the batch: (blocks, samples)."""
        return self.once(("counts", axis), lambda: axis.counts[:, self.numbers])

    def total(self, axis: SampleAxis) -> int:
        return self.once(("total", axis), lambda: int(self.counts(axis).sum()))

    def rows(self, axis: SampleAxis) -> Tensor:
        """The rows of the batch, in its order."""

        def find() -> Tensor:
            starts = axis.starts[:, self.numbers]
            return torch.from_numpy(ranges(starts.reshape(-1), self.counts(axis).reshape(-1)))

        return self.once(("rows", axis), find)

    def starts(self, axis: SampleAxis) -> Ints:
        """Where each part begins in the batch: (blocks, samples)."""

        def find() -> Ints:
            counts = self.counts(axis)
            return pointer(counts.reshape(-1))[:-1].reshape(counts.shape)

        return self.once(("starts", axis), find)

    def shift(self, axis: SampleAxis, into: SampleAxis) -> Tensor:
        """For each row of one axis, where its sample begins on another, which has one block."""

        def find() -> Tensor:
            starts = np.tile(self.starts(into)[0], axis.blocks)
            return torch.from_numpy(np.repeat(starts, self.counts(axis).reshape(-1)))

        return self.once(("shift", axis, into), find)

    def entries(self, axis: SampleAxis) -> Tensor:
        """The sample of each row, counted in the batch."""

        def find() -> Tensor:
            each = np.tile(np.arange(len(self.numbers)), axis.blocks)
            return torch.from_numpy(np.repeat(each, self.counts(axis).reshape(-1)))

        return self.once(("entries", axis), find)

    def once(self, key: Any, find: Callable[[], Found]) -> Found:
        """What is found out about the batch, once for all that read it."""
        if key not in self.found:
            self.found[key] = find()
        found: Found = self.found[key]
        return found
