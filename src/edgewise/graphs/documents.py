"""Several documents packed into one sequence."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import whole
from edgewise.graphs.errors import BadSize, SizeMismatch
from edgewise.graphs.numbers import Integers, Numbers
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, pieces


@dataclass(frozen=True, repr=False)
class documents(Pattern):
    """Pairs of one document: {(i, j) : document(i) = document(j)}, for n = Σ lengths.

    >>> documents([2, 1]).edges(3).T.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]]
    """

    lengths: Integers

    def __post_init__(self) -> None:
        lengths = Numbers(self.lengths, "lengths", axes=1)
        if (lengths.array < 0).any():
            raise BadSize(
                f"`lengths` must not be negative, got {int(lengths.array.min())}",
                caller(),
                "give the number of tokens of each document",
            )
        whole(int(lengths.array.sum()), "the sum of the lengths")
        object.__setattr__(self, "lengths", lengths)

    @property
    def ends(self) -> np.ndarray:
        assert isinstance(self.lengths, Numbers)
        return np.cumsum(self.lengths.array)

    @property
    def is_arithmetic(self) -> bool:
        return False

    def pieces(self, n: int, m: int) -> Pieces:
        self._check(n, m)
        first = self.ends - np.diff(self.ends, prepend=0)
        return pieces((first, self.ends), first, self.ends)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        self._check(n, m)
        owner = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
        document = torch.from_numpy(owner).to(i.device)
        return document[i] == document[j]

    def _check(self, n: int, m: int) -> None:
        total = int(self.ends[-1]) if len(self.ends) else 0
        if n != total or m != total:
            raise SizeMismatch(
                f"the lengths sum to {total}, but there are {n} queries and {m} keys",
                caller(),
                f"add a document of {n - total} for the padding"
                if n == m > total
                else f"ask for n = {total}",
            )
