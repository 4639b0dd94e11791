"""Erdős–Rényi random graphs."""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from edgewise.graphs.checks import check_memory, probability, required_seed
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import Words, words
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints

CHUNK = 4096
PRECISION = 96
TOO_RARE = 2.0**-60  # not once in as many pairs as there can be


@dataclass(frozen=True, repr=False)
class erdos_renyi(Pattern):
    """Each pair (i, j) with probability p, independently and directed.

    The gaps between the keys of a row are sampled, not the pairs, and each row independently: the
    graph of n tokens is that of n + 1 without the last.

    >>> erdos_renyi(1.0, seed=0).count(3)
    9
    """

    p: float
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability(self.p))
        required_seed(self.seed, "erdos_renyi")

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        high = last - first
        if self.p < TOO_RARE:
            return rows_of_pairs(high, m, np.zeros(0, np.int64), np.zeros(0, np.int64))
        batch = max(4, round(self.p * m * 1.25) + 2)
        check_memory(8 * high * batch, f"{round(self.p * high * m):,} random pairs")
        rows, place = np.arange(first, last), np.full(high, -1)
        found: list[tuple[Ints, Ints]] = []
        drawn = 0
        while len(rows):
            bits = words(required_seed(self.seed, ""), rows, 2 * drawn, 2 * batch)
            keys = place[:, None] + np.cumsum(gaps(bits, self.p), axis=1)
            some = keys < m
            found.append((np.repeat(rows, some.sum(axis=1)), keys[some]))
            open_rows = keys[:, -1] < m - 1
            rows, place = rows[open_rows], keys[open_rows, -1]
            drawn += batch
        i, j = (np.concatenate(part) for part in zip(*found, strict=True)) if found else ([], [])
        i, j = np.asarray(i, np.int64), np.asarray(j, np.int64)
        return rows_of_pairs(high, m, i - first, j)


def gaps(bits: Words, p: float) -> Ints:
    """Gaps to the next key, P(gap > g) = (1 - p)ᵍ, from two words each.

    The first gives the number of chunks of `CHUNK` pairs to skip, the second the position in the
    next chunk.
    """
    far, near = _limits(p)
    skipped = len(far) - np.searchsorted(far[::-1], bits[:, 0::2], side="right")
    inside = len(near) - np.searchsorted(near[::-1], bits[:, 1::2], side="right")
    return skipped * CHUNK + inside + 1


@lru_cache(maxsize=16)
def _limits(p: float) -> tuple[Words, Words]:
    """2⁶⁴·P(more than k chunks are skipped), and 2⁶⁴·P(the key is after position k of its chunk).

    Integer arithmetic, so that every machine has the same tables.
    """
    one = 1 << PRECISION
    keep = one - int(Fraction(p) * one)
    powers = [one]
    while len(powers) <= CHUNK:
        powers.append(powers[-1] * keep >> PRECISION)
    end = powers[-1]
    near = [(power - end) * 2**64 // (one - end) for power in powers[1:-1]]
    power, far = end, list[int]()
    while len(far) < CHUNK and power:
        far.append(power >> PRECISION - 64)
        power = power * end >> PRECISION
    return np.array(far, dtype=np.uint64), np.array(near, dtype=np.uint64)
