"""Which tokens each rank has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from edgewise.distributed.errors import BadShards
from edgewise.distributed.token_sets import TokenSet
from edgewise.errors import caller
from edgewise.graphs.checks import integer, short_repr
from edgewise.layouts.ragged import Ints, pointer


@dataclass(frozen=True)
class Shards:
    """n tokens on a number of ranks; those of one rank ascend.

    Contiguous: rank r of P has ⌊n·r/P⌋ ≤ i < ⌊n·(r+1)/P⌋. With `step` s > 1 the tokens are cut in
    the order of i mod s, so that a strided graph stays on its rank. `paired` cuts 2P pieces, of
    which rank r has r and 2P-1-r: causal attention is then equal work for all. `cuts` are the first
    tokens of the ranks from the second on, where contiguous tokens are cut elsewhere.

    >>> [Shards(8, 2).tokens(r).list().tolist() for r in range(2)]
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    >>> [Shards(8, 2, step=2).tokens(r).list().tolist() for r in range(2)]
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    >>> [Shards(8, 2, paired=True).tokens(r).list().tolist() for r in range(2)]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    >>> [Shards(8, 2, cuts=(3,)).tokens(r).list().tolist() for r in range(2)]
    [[0, 1, 2], [3, 4, 5, 6, 7]]
    """

    n: int
    ranks: int
    step: int = 1
    paired: bool = False
    cuts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        integer(self.n, "n")
        integer(self.ranks, "ranks", 1)
        integer(self.step, "step", 1)
        if self.paired + (self.step > 1) + bool(self.cuts) > 1:
            raise BadShards(
                "`paired`, `step` and `cuts` exclude one another",
                caller(),
                "give one of them",
            )
        if self.cuts:
            self._check_cuts()

    def _check_cuts(self) -> None:
        cuts = self.cuts if isinstance(self.cuts, tuple | list) else ()
        ends = (0, *[integer(cut, "cuts") for cut in cuts], self.n)
        if len(ends) != self.ranks + 1 or any(a > b for a, b in pairwise(ends)):
            raise BadShards(
                f"`cuts` is {short_repr(self.cuts)}, of {self.n} tokens for {self.ranks} ranks",
                caller(),
                f"give {self.ranks - 1} ascending numbers from 0 to {self.n}: the first token of "
                "each further rank",
            )
        object.__setattr__(self, "cuts", tuple(ends[1:-1]))

    @property
    def bounds(self) -> Ints:
        """Where the tokens of each rank begin and end, in the order in which they are cut.

        >>> Shards(9, 2).bounds.tolist()
        [0, 4, 9]
        """
        return np.array([0, *self.cuts, self.n]) if self.cuts else _bounds(self.n, self.ranks)

    @property
    def is_contiguous(self) -> bool:
        return self.step == 1 and not self.paired

    def count(self, rank: int) -> int:
        """How many tokens a rank has.

        >>> Shards(9, 2).count(0), Shards(9, 2).count(1)
        (4, 5)
        """
        return self.tokens(rank).count

    def tokens(self, rank: int) -> TokenSet:
        """The tokens of a rank.

        >>> Shards(8, 2).tokens(1).list().tolist()
        [4, 5, 6, 7]
        """
        if not 0 <= rank < self.ranks:
            raise BadShards(
                f"there is no rank {rank}: there are {self.ranks} ranks",
                caller(),
                f"ranks count from 0 to {self.ranks - 1}",
            )
        return _tokens(self, rank)

    def owner(self, tokens: Ints) -> Ints:
        """The rank of each token.

        >>> import numpy
        >>> Shards(8, 2).owner(numpy.array([0, 7])).tolist()
        [0, 1]
        """
        if self.paired:
            piece = np.searchsorted(_bounds(self.n, 2 * self.ranks), tokens, side="right") - 1
            return np.minimum(piece, 2 * self.ranks - 1 - piece)
        place = _place(tokens, self.n, self.step) if self.step > 1 else tokens
        return np.searchsorted(self.bounds, place, side="right") - 1

    def take(self, x: Tensor, rank: int, dim: int = -2) -> Tensor:
        """The rows of a rank, of a tensor with all tokens along `dim`.

        >>> import torch
        >>> Shards(4, 2).take(torch.arange(4.0).view(4, 1), 1).flatten().tolist()
        [2.0, 3.0]
        """
        if not -x.ndim <= dim < x.ndim:
            raise BadShards(
                f"there is no axis {dim} of a tensor of shape {tuple(x.shape)}",
                caller(),
                "give the axis of the tokens: `shards.take(x, rank, 0)`",
            )
        if x.shape[dim] != self.n:
            raise BadShards(
                f"axis {dim} has {x.shape[dim]} tokens, the shards cover {self.n}",
                caller(),
                "give a tensor with all tokens, or shards of that many",
            )
        mine = self.tokens(rank)
        if len(mine.start) == 1:
            return x.narrow(dim, int(mine.start[0]), mine.count)
        return x.index_select(dim, torch.from_numpy(mine.list()).to(x.device))

    def join(self, parts: list[Tensor], dim: int = -2) -> Tensor:
        """All tokens in their order again, from the rows of every rank.

        >>> import torch
        >>> shards, x = Shards(4, 2, step=2), torch.arange(4.0).view(4, 1)
        >>> torch.equal(shards.join([shards.take(x, rank) for rank in (0, 1)]), x)
        True
        """
        together = torch.cat(parts, dim)
        if self.is_contiguous:
            return together
        order = np.concatenate([self.tokens(rank).list() for rank in range(self.ranks)])
        return together.index_select(dim, torch.from_numpy(np.argsort(order)).to(together.device))


@lru_cache(4096)
def _tokens(shards: Shards, rank: int) -> TokenSet:
    n, ranks, step = shards.n, shards.ranks, shards.step
    if shards.paired:
        bounds = _bounds(n, 2 * ranks)
        at = np.array([rank, 2 * ranks - 1 - rank])
        return TokenSet.of(bounds[at], bounds[at + 1])
    first, last = shards.bounds[rank : rank + 2].tolist()
    if step == 1:
        return TokenSet.of([first], [last])
    return TokenSet.of_tokens(np.sort(_at_place(np.arange(first, last), n, step)))


@lru_cache(256)
def _bounds(n: int, ranks: int) -> Ints:
    return np.array([n * rank // ranks for rank in range(ranks + 1)], np.int64)


@lru_cache(64)
def _classes(n: int, step: int) -> Ints:
    """Where each residue class begins in the order of i mod step."""
    return pointer(np.maximum((n - np.arange(step) + step - 1) // step, 0))


def _place(tokens: Ints, n: int, step: int) -> Ints:
    return _classes(n, step)[tokens % step] + tokens // step


def _at_place(place: Ints, n: int, step: int) -> Ints:
    ptr = _classes(n, step)
    residue = np.searchsorted(ptr, place, side="right") - 1
    return residue + step * (place - ptr[residue])
