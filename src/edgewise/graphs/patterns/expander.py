"""Random regular graphs, which are expanders."""

from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from edgewise.errors import caller
from edgewise.graphs.checks import check_memory, check_square, integer, required_seed
from edgewise.graphs.errors import BadSize
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.full import full
from edgewise.graphs.patterns.window import window
from edgewise.graphs.philox import below, shuffled, words
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints

ATTEMPTS = 256


@dataclass(frozen=True, repr=False)
class expander(Pattern):
    """A random k-regular graph: k/2 edge-disjoint random Hamiltonian cycles. If n is too small for
    them, a ring in random order, each token linked to k/2 on either side; for n ≤ k + 1 every
    token attends to all others.

    Its second eigenvalue is close to the Ramanujan bound 2√(k - 1), the least possible for large
    n. The graph of more tokens does not extend this one.

    >>> expander(4, seed=0).degrees(16).unique().tolist()
    [4]
    """

    k: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if integer(self.k, "k", 2) % 2:
            raise BadSize(
                f"`k` must be even, got {self.k}", caller(), "each cycle gives a token two edges"
            )
        required_seed(self.seed, "expander")

    @property
    def ramanujan_bound(self) -> float:
        """2√(k - 1).

        >>> round(expander(4, seed=0).ramanujan_bound, 3)
        3.464
        """
        return 2 * sqrt(self.k - 1)

    def compute_rows(self, n: int, m: int) -> Rows:
        check_square(self, n, m)
        if n <= self.k + 1:
            return (full() - window(0)).rows(n)
        check_memory(16 * n * self.k, f"{self.k:,} edges for each of {n:,} tokens")
        taken = np.zeros(0, np.int64)
        for turn in range(self.k // 2):
            cycle = shuffled(required_seed(self.seed, ""), n, stream=turn)
            taken = np.sort(np.concatenate([taken, _keys(_apart(cycle, taken, self.seed or 0))]))
        i, j = taken // n, taken % n
        if len(np.unique(taken)) < n * self.k // 2:
            i, j = _ring(shuffled(required_seed(self.seed, ""), n, stream=0), self.k)
        return rows_of_pairs(n, m, np.concatenate([i, j]), np.concatenate([j, i]))


def _ring(order: Ints, k: int) -> tuple[Ints, Ints]:
    """Edges of each token of a ring to the k/2 after it."""
    steps = np.arange(1, k // 2 + 1)
    at = np.arange(len(order))[:, None]
    other = order[(at + steps) % len(order)]
    return np.repeat(order, len(steps)), other.reshape(-1)


def _keys(cycle: Ints) -> Ints:
    """The edges of a cycle as keys, the smaller end first."""
    after = np.roll(cycle, -1)
    return np.minimum(cycle, after) * len(cycle) + np.maximum(cycle, after)


def _apart(cycle: Ints, taken: Ints, seed: int) -> Ints:
    """The cycle with segments reversed until it shares no edge with those taken.

    Two cycles share two edges on average, so some reversals are enough unless the graph is too
    small for disjoint cycles.
    """
    shared = _found(_keys(cycle), taken)
    for attempt in range(ATTEMPTS):
        if not shared.any():
            break
        other = int(below(words(seed, np.array([attempt]), 0, 1, stream=99), len(cycle))[0, 0])
        low, high = sorted((int(np.argmax(shared)) + 1, other + 1))
        cycle[low:high] = cycle[low:high][::-1].copy()
        shared[low : high - 1] = shared[low : high - 1][::-1].copy()
        for at in (low - 1, high - 1):
            ends = np.sort(cycle[[at, (at + 1) % len(cycle)]])
            shared[at] = _found(ends[:1] * len(cycle) + ends[1:], taken)[0]
    return cycle


def _found(keys: Ints, among: Ints) -> np.ndarray:
    """Which keys are in a sorted array."""
    if not len(among):
        return np.zeros(len(keys), bool)
    return among[np.minimum(np.searchsorted(among, keys), len(among) - 1)] == keys
