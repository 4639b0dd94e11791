"""Locality-sensitive hashing (Reformer, Kitaev et al. 2020, arXiv 2001.04451)."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import (
    check_length,
    check_memory,
    integer,
    required_seed,
    sequence_lengths,
    short_repr,
)
from edgewise.graphs.errors import BadEdges, BadSize
from edgewise.graphs.int_array import IntArray, Integers, has_data
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import words
from edgewise.layouts import Rows, rows_of_keys
from edgewise.layouts.ragged import Ints, pointer, ranges, starts_of_runs

MOST_ROUNDS = 8


@dataclass(frozen=True, repr=False)
class lsh(Pattern):
    """Tokens that share a bucket in some round: {(i, j) : bucketᵣ(i) = bucketᵣ(j) for some r}.

    `buckets` has a row per round. With `chunk`, tokens are sorted by bucket and position, cut into
    chunks, and a pair must also be in the same chunk or j one chunk before i.

    >>> lsh([[0, 1, 0]]).edges(3).T.tolist()
    [[0, 0], [0, 2], [1, 1], [2, 0], [2, 2]]
    """

    buckets: Integers
    chunk: int | None = field(default=None, kw_only=True)
    is_arithmetic = False

    def __post_init__(self) -> None:
        buckets = IntArray(self.buckets, "buckets")
        if buckets.array.ndim != 2 or not len(buckets):
            raise BadEdges(
                f"`buckets` must have a row per round, got shape {buckets.array.shape}",
                caller(),
                "give [[bucket of token 0, ...], ...]",
            )
        if self.chunk is not None:
            integer(self.chunk, "chunk", 1)
        object.__setattr__(self, "buckets", buckets)

    def compute_rows(self, n: int, m: int) -> Rows:
        found = [self._round(bucket) for bucket in self._table(n, m)]
        count = sum(int((high - low).sum()) for _, low, high in found)
        check_memory(5 * count, f"a list of {count:,} pairs")
        keys = [_pairs(*one) for one in found]
        # a stable sort merges the sorted runs
        key = np.sort(np.concatenate(keys), kind="stable") if len(keys) > 1 else keys[0]
        key = key[starts_of_runs(key)]
        row = key // max(n, 1)
        return rows_of_keys(n, m, pointer(np.bincount(row, minlength=n)), key - row * n)

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs, by inclusion–exclusion over the rounds."""
        table = self._table(*sequence_lengths(n, m))
        if self.chunk is None and len(table) <= MOST_ROUNDS:
            return _joined(table)
        if len(table) == 1:
            _, low, high = self._round(table[0])
            return int((high - low).sum())
        return super().count(n, m)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        out = torch.zeros_like(i + j, dtype=torch.bool)
        for bucket in self._table(n, m):
            of = torch.from_numpy(bucket.copy()).to(i.device)
            alike = of[i] == of[j]
            if self.chunk is not None:
                place = np.argsort(np.argsort(bucket, kind="stable"), kind="stable")
                chunk = torch.from_numpy(place // self.chunk).to(i.device)
                back = chunk[i] - chunk[j]
                alike = alike & (back >= 0) & (back <= 1)
            out = out | alike
        return out

    def _table(self, n: int, m: int) -> Ints:
        assert isinstance(self.buckets, IntArray)
        check_length(self.buckets.array.shape[1], n, m, "lsh")
        return self.buckets.array

    def _round(self, bucket: Ints) -> tuple[Ints, Ints, Ints]:
        """The tokens in order, and the range of positions in it that each attends to."""
        n = len(bucket)
        order = np.argsort(bucket, kind="stable")
        first = starts_of_runs(bucket[order])
        size = np.diff(np.append(first, n))
        low, high = np.repeat(first, size), np.repeat(first + size, size)
        if self.chunk is not None:
            begin = np.arange(n) // self.chunk * self.chunk
            low, high = np.maximum(low, begin - self.chunk), np.minimum(high, begin + self.chunk)
        return order, low, high


def _pairs(order: Ints, low: Ints, high: Ints) -> Ints:
    """The pairs of a round as keys i·n + j, sorted."""
    place = np.argsort(order)
    first, count = low[place], (high - low)[place]
    return np.repeat(np.arange(len(order)) * len(order), count) + order[ranges(first, count)]


def _joined(table: Ints) -> int:
    """The number of pairs that share a bucket in some round, by inclusion–exclusion."""
    total = 0
    kinds = [
        (np.zeros(table.shape[1], np.int64), -1)
    ]  # the empty set of rounds, all tokens in one bucket; the sign
    for bucket in table:
        name = np.unique(bucket, return_inverse=True)[1]
        for kind, sign in list(kinds):
            both = np.unique(kind * table.shape[1] + name, return_inverse=True)[1]
            total -= sign * int((np.bincount(both).astype(object) ** 2).sum())
            kinds.append((both, -sign))
    return total


def lsh_of(
    x: Tensor, buckets: int, *, rounds: int = 1, chunk: int | None = None, seed: int | None = None
) -> lsh:
    """The pattern of vectors x (n, d) hashed to argmax [xR, -xR], R random directions.

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0]])
    >>> lsh_of(x, 2, seed=0).edges(3).T.tolist()
    [[0, 0], [0, 2], [1, 1], [2, 0], [2, 2]]
    """
    if integer(buckets, "buckets", 2) % 2:
        raise BadSize(
            f"`buckets` must be even, got {buckets}",
            caller(),
            "a direction and its opposite are two buckets",
        )
    rounds = integer(rounds, "rounds", 1)
    if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or not has_data(x):
        raise BadEdges(
            f"`x` must be vectors, got {short_repr(x)}",
            caller(),
            "give a tensor of shape (n, d) of floating-point numbers",
        )
    if not x.isfinite().all():
        raise BadEdges("`x` holds NaN or infinity", caller(), "give finite numbers")
    size = (x.shape[1], rounds * buckets // 2)
    check_memory(16 * 12 * size[0] * size[1] + 4 * len(x) * size[1], f"{size[1]:,} directions")
    bits = words(required_seed(seed, "lsh_of"), np.arange(size[0]), 0, 12 * size[1])
    # Sums of 12 uniforms are near enough to normal, and the same on every machine.
    uniform = (bits >> np.uint64(40)).reshape(*size, 12).sum(axis=2).astype(np.float64)
    directions = torch.from_numpy(uniform / 2**24 - 6).to(x)
    turned = (x @ directions).view(len(x), rounds, buckets // 2)
    return lsh(torch.cat([turned, -turned], dim=2).argmax(dim=2).T, chunk=chunk)
