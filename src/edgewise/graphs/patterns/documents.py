"""Packed documents: block-diagonal attention."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import integer, query_key_lengths, short_repr
from edgewise.graphs.errors import BadSize, SizeMismatch
from edgewise.graphs.int_array import IntArray, Integers
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, trapezoids


@dataclass(frozen=True, repr=False)
class documents(Pattern):
    """Pairs of one document: {(i, j) : document(i) = document(j)}, for n = Σ lengths.

    >>> documents([2, 1]).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]]
    """

    lengths: Integers
    is_arithmetic = False

    def __post_init__(self) -> None:
        lengths = IntArray(self.lengths, "lengths", axes=1)
        if (lengths.array < 0).any():
            raise BadSize(
                f"`lengths` must not be negative, got {int(lengths.array.min())}",
                caller(),
                "give the length of each document",
            )
        integer(int(lengths.array.sum()), "the sum of the lengths")
        object.__setattr__(self, "lengths", lengths)

    @property
    def ends(self) -> np.ndarray:
        assert isinstance(self.lengths, IntArray)
        return np.cumsum(self.lengths.array)

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        self._check(n, m)
        first = self.ends - np.diff(self.ends, prepend=0)
        return trapezoids((first, self.ends), first, self.ends)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        self._check(n, m)
        owner = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
        document = torch.from_numpy(owner).to(i.device)
        return document[i] == document[j]

    def _check(self, n: int, m: int) -> None:
        total = int(self.ends[-1]) if len(self.ends) else 0
        if n != total or m != total:
            raise SizeMismatch(
                f"`{short_repr(self)}` covers {total} tokens; {query_key_lengths(n, m)}",
                caller(),
                f"add a document of length {n - total} for the padding"
                if n == m > total
                else f"use n = {total}",
            )
