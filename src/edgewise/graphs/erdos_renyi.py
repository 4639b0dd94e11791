"""Every pair by the toss of a coin."""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from edgewise.graphs.checks import probability, room, seeded
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import Words, words
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints

STRETCH = 4096
PRECISION = 96
TOO_RARE = 2.0**-60  # not once in as many pairs as there can be


@dataclass(frozen=True, repr=False)
class erdos_renyi(Pattern):
    """Each pair (i, j) with probability p, independently; i hears j does not mean j hears i.

    The gaps between the keys of a row are drawn, not the pairs, and each row by itself: the graph
    of n tokens is that of n + 1 without the last.

    >>> erdos_renyi(1.0, seed=0).count(3)
    9
    """

    p: float
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability(self.p))
        seeded(self.seed, "erdos_renyi")

    def form(self, n: int, m: int) -> Rows:
        return self.stretch(n, m, 0, n)

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        high = last - first
        if self.p < TOO_RARE:
            return rows_of_pairs(high, m, np.zeros(0, np.int64), np.zeros(0, np.int64))
        batch = max(4, round(self.p * m * 1.25) + 2)
        room(8 * high * batch, f"{round(self.p * high * m):,} random pairs")
        rows, place = np.arange(first, last), np.full(high, -1)
        found: list[tuple[Ints, Ints]] = []
        drawn = 0
        while len(rows):
            bits = words(seeded(self.seed, ""), rows, 2 * drawn, 2 * batch)
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
    """Steps to the next key, P(step > g) = (1 - p)ᵍ, from two words each.

    The first says how many stretches of `STRETCH` pairs are passed, the second where in the next
    one the key is.
    """
    far, near = _limits(p)
    passed = len(far) - np.searchsorted(far[::-1], bits[:, 0::2], side="right")
    inside = len(near) - np.searchsorted(near[::-1], bits[:, 1::2], side="right")
    return passed * STRETCH + inside + 1


@lru_cache(maxsize=16)
def _limits(p: float) -> tuple[Words, Words]:
    """2⁶⁴·P(more than k stretches are passed), and 2⁶⁴·P(the key is after place k of its stretch).

    Whole-number arithmetic, so that every machine has the same tables.
    """
    one = 1 << PRECISION
    keep = one - int(Fraction(p) * one)
    powers = [one]
    while len(powers) <= STRETCH:
        powers.append(powers[-1] * keep >> PRECISION)
    end = powers[-1]
    near = [(power - end) * 2**64 // (one - end) for power in powers[1:-1]]
    power, far = end, list[int]()
    while len(far) < STRETCH and power:
        far.append(power >> PRECISION - 64)
        power = power * end >> PRECISION
    return np.array(far, dtype=np.uint64), np.array(near, dtype=np.uint64)
