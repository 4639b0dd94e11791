"""Global tokens, which attend to all tokens and are attended to by all."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.checks import integer
from edgewise.graphs.int_array import IntArray
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Trapezoids, joined, trapezoids


@dataclass(frozen=True, repr=False)
class global_tokens(Pattern):
    """The rows and columns of the global tokens G: {(i, j) : i ∈ G or j ∈ G}.

    G is the first k tokens for an integer, otherwise the listed positions: a list, set, range,
    array or tensor.

    >>> global_tokens(1).edges(3).T.tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0]]
    >>> global_tokens((0, 2)).count(3)
    8
    """

    ignores_lengths = True

    tokens: int | tuple[int, ...]

    def __post_init__(self) -> None:
        if isinstance(self.tokens, np.ndarray | Tensor):
            listed = IntArray(self.tokens, "tokens").array.tolist()
            object.__setattr__(self, "tokens", listed)
        if isinstance(self.tokens, list | tuple | set | frozenset | range):
            listed = tuple(sorted({integer(token, "tokens") for token in self.tokens}))
            object.__setattr__(self, "tokens", listed)
        else:
            integer(self.tokens, "tokens")

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        first = 0 if isinstance(self.tokens, int) else self.tokens
        last = self.tokens if isinstance(self.tokens, int) else [t + 1 for t in self.tokens]
        columns, rows = trapezoids((0, n), first, last), trapezoids((first, last), 0, m)
        return joined(columns, rows)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        if isinstance(self.tokens, int):
            return torch.minimum(i, j) < self.tokens
        out = torch.zeros_like(i + j, dtype=torch.bool)
        for token in self.tokens:
            out = out | (i == token) | (j == token)
        return out
