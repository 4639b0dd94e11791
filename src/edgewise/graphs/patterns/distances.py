"""Attention at some distances alone."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import check_memory, integer
from edgewise.graphs.errors import BadSize
from edgewise.graphs.int_array import IntArray, Integers
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Rows, rows_of_keys
from edgewise.layouts.ragged import Ints, pointer


@dataclass(frozen=True, repr=False)
class distances(Pattern):
    """Pairs at one of some distances: {(i, j) : |i - j| ∈ among}.

    >>> distances([0, 2]).edges(4).T.tolist()
    [[0, 0], [0, 2], [1, 1], [1, 3], [2, 0], [2, 2], [3, 1], [3, 3]]
    """

    ignores_lengths = True

    among: Integers

    def __post_init__(self) -> None:
        among = IntArray(self.among, "distances", axes=1)
        if among.array.size and among.array.min() < 0:
            raise BadSize(
                f"a distance is {int(among.array.min())}", caller(), "give distances from 0 on"
            )
        object.__setattr__(self, "among", among)

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        assert isinstance(self.among, IntArray)
        return rows_at(m, first, last, self.among.array)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        assert isinstance(self.among, IntArray)
        return torch.isin((i - j).abs(), torch.from_numpy(self.among.array.copy()).to(i.device))


@dataclass(frozen=True, repr=False)
class powers(Pattern):
    """Itself and the pairs at powers of `base`: {(i, j) : |i - j| = 0 or baseᵏ}, k = 0, 1, ...

    With `& causal()` the LogSparse Transformer (https://arxiv.org/abs/1907.00235).

    >>> powers(2).edges(4).T.tolist()[:4]
    [[0, 0], [0, 1], [0, 2], [1, 0]]
    """

    ignores_lengths = True

    base: int = 2

    def __post_init__(self) -> None:
        integer(self.base, "base", 2)

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        return rows_at(m, first, last, self._distances(max(last, m)))

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        found = torch.from_numpy(self._distances(max(n, m))).to(i.device)
        return torch.isin((i - j).abs(), found)

    def _distances(self, most: int) -> Ints:
        found = [0, 1]
        while found[-1] < most:
            found.append(found[-1] * self.base)
        return np.array(found, np.int64)


def rows_at(m: int, first: int, last: int, among: Ints) -> Rows:
    """The rows first ≤ i < last of pairs at some distances."""
    near = among[among < max(last, m)]
    offsets = np.unique(np.concatenate([near, -near])).astype(np.int64)
    high = last - first
    check_memory(2 * high * len(offsets), f"{len(offsets):,} distances of {high:,} queries")
    keys = np.arange(first, last)[:, None] + offsets
    inside = (keys >= 0) & (keys < m)
    return rows_of_keys(high, m, pointer(inside.sum(1)), keys[inside])
