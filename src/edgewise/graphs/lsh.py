"""Tokens that hash alike (Reformer, Kitaev et al. 2020, arXiv 2001.04451)."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.errors import BadEdges, BadSize, seeded, whole
from edgewise.graphs.numbers import Integers, Numbers
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import words
from edgewise.graphs.tree import check_length
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints, ranges, starts_of_runs


@dataclass(frozen=True, repr=False)
class lsh(Pattern):
    """Tokens in one bucket in some round: {(i, j) : bucketᵣ(i) = bucketᵣ(j) for some r}.

    `buckets` has a row per round. With `chunk`, tokens are sorted by bucket and position, cut into
    chunks, and a pair must also be in the same chunk or j one chunk before i.

    >>> lsh([[0, 1, 0]]).edges(3).T.tolist()
    [[0, 0], [0, 2], [1, 1], [2, 0], [2, 2]]
    """

    buckets: Integers
    chunk: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        buckets = Numbers(self.buckets, "buckets")
        if buckets.array.ndim != 2:
            raise BadEdges(
                f"`buckets` must have a row per round, got shape {buckets.array.shape}",
                caller(),
                "give [[bucket of token 0, ...], ...]",
            )
        if self.chunk is not None:
            whole(self.chunk, "chunk", 1)
        object.__setattr__(self, "buckets", buckets)

    def form(self, n: int, m: int) -> Rows:
        assert isinstance(self.buckets, Numbers)
        check_length(self.buckets.array.shape[1], n, m, "lsh")
        found = [self._round(bucket, n) for bucket in self.buckets.array]
        i, j = (np.concatenate(part) for part in zip(*found, strict=True)) if found else ([], [])
        return rows_of_pairs(n, m, np.asarray(i, np.int64), np.asarray(j, np.int64))

    def _round(self, bucket: Ints, n: int) -> tuple[Ints, Ints]:
        order = np.argsort(bucket, kind="stable")
        first = starts_of_runs(bucket[order])
        size = np.diff(np.append(first, n))
        low, high = np.repeat(first, size), np.repeat(first + size, size)
        if self.chunk is not None:
            begin = np.arange(n) // self.chunk * self.chunk
            low, high = np.maximum(low, begin - self.chunk), np.minimum(high, begin + self.chunk)
        return np.repeat(order, high - low), order[ranges(low, high - low)]


def lsh_of(
    x: Tensor, buckets: int, *, rounds: int = 1, chunk: int | None = None, seed: int | None = None
) -> lsh:
    """The buckets of vectors x (n, d): the largest of [xR, -xR], R random directions.

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0]])
    >>> lsh_of(x, 2, seed=0).edges(3).T.tolist()
    [[0, 0], [0, 2], [1, 1], [2, 0], [2, 2]]
    """
    if whole(buckets, "buckets", 2) % 2:
        raise BadSize(
            f"`buckets` must be even, got {buckets}", caller(), "directions come in pairs"
        )
    size = (x.shape[1], rounds * buckets // 2)
    bits = words(seeded(seed, "lsh_of"), np.arange(size[0]), 0, 12 * size[1])
    # Sums of uniform numbers: normal enough for directions, and free of any library's logarithm.
    uniform = (bits >> np.uint64(40)).reshape(*size, 12).sum(axis=2).astype(np.float64)
    directions = torch.from_numpy(uniform / 2**24 - 6).to(x)
    turned = (x @ directions).view(len(x), rounds, buckets // 2)
    return lsh(torch.cat([turned, -turned], dim=2).argmax(dim=2).T, chunk=chunk)
