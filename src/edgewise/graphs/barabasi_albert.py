"""Hubs (Barabási & Albert 1999): who has many neighbours gets more."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.checks import room, seeded, whole
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import below, words
from edgewise.graphs.sizes import square
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints


@dataclass(frozen=True, repr=False)
class barabasi_albert(Pattern):
    """Token i = 1, 2, ... joins k earlier tokens, each with a probability in proportion to the
    edges it has so far; joined tokens hear each other. Edges drawn twice count once.

    An end of an earlier edge is drawn, all equally likely (Batagelj & Brandes 2005), so that rows
    need not wait for each other: the graph of n tokens is that of n + 1 without the last.

    >>> barabasi_albert(1, seed=0).count(5)
    8
    """

    k: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        whole(self.k, "k", 1)
        seeded(self.seed, "barabasi_albert")

    def form(self, n: int, m: int) -> Rows:
        square(self, n, m)
        room(16 * n * self.k, f"{self.k:,} random edges for each of {n:,} tokens")
        whole(2 * self.k * n, "the ends of all edges")
        i, j = self._joined(n)
        return rows_of_pairs(n, m, np.concatenate([i, j]), np.concatenate([j, i]))

    def _joined(self, n: int) -> tuple[Ints, Ints]:
        """Edge e joins token 1 + e div k to the token at a drawn end of the edges before it.

        End 2e of edge e is its young token, 2e + 1 its old one; the edges of token 1 all go to 0.
        """
        tokens = np.arange(1, max(n, 1))
        young = np.repeat(tokens, self.k)
        bits = words(seeded(self.seed, ""), tokens, 0, self.k).ravel()
        earlier = 2 * self.k * (young - 1)
        end = below(bits, np.maximum(earlier, 1))
        old = np.where(young == 1, 0, -1)
        open_edges = np.flatnonzero(old < 0)
        while len(open_edges):
            at = end[open_edges]
            known = np.where(at % 2 == 0, young[at // 2], old[at // 2])
            old[open_edges] = known
            end[open_edges] = np.where(known < 0, end[at // 2], at)
            open_edges = open_edges[known < 0]
        return young, old
