"""A few tokens that hear everybody and that everybody hears."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.checks import whole
from edgewise.graphs.numbers import Numbers
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Pieces, joined, pieces


@dataclass(frozen=True, repr=False)
class global_tokens(Pattern):
    """The rows and columns of the global tokens G: {(i, j) : i ∈ G or j ∈ G}.

    G is the first k tokens if a number is given, otherwise the positions listed: in a list, a set,
    a range, an array or a tensor.

    >>> global_tokens(1).edges(3).T.tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0]]
    >>> global_tokens((0, 2)).count(3)
    8
    """

    tokens: int | tuple[int, ...]

    def __post_init__(self) -> None:
        if isinstance(self.tokens, np.ndarray | Tensor):
            listed = Numbers(self.tokens, "tokens").array.tolist()
            object.__setattr__(self, "tokens", listed)
        if isinstance(self.tokens, list | tuple | set | frozenset | range):
            listed = tuple(sorted({whole(token, "tokens") for token in self.tokens}))
            object.__setattr__(self, "tokens", listed)
        else:
            whole(self.tokens, "tokens")

    def pieces(self, n: int, m: int) -> Pieces:
        first = 0 if isinstance(self.tokens, int) else self.tokens
        last = self.tokens if isinstance(self.tokens, int) else [t + 1 for t in self.tokens]
        columns, rows = pieces((0, n), first, last), pieces((first, last), 0, m)
        return joined(columns, rows)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        if isinstance(self.tokens, int):
            return torch.minimum(i, j) < self.tokens
        out = torch.zeros_like(i + j, dtype=torch.bool)
        for token in self.tokens:
            out = out | (i == token) | (j == token)
        return out
