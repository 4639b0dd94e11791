"""Preferential attachment (Barabási & Albert 1999): graphs with hubs."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.graphs.checks import check_memory, check_square, integer, required_seed
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import below, words
from edgewise.layouts import Rows, rows_of_pairs
from edgewise.layouts.ragged import Ints


@dataclass(frozen=True, repr=False)
class barabasi_albert(Pattern):
    """Token i = 1, 2, ... is linked to k earlier tokens, each with probability proportional to its
    degree; linked tokens attend to each other. Repeated edges count once.

    An end of an earlier edge is sampled uniformly (Batagelj & Brandes 2005), so that rows are
    independent: the graph of n tokens is that of n + 1 without the last.

    >>> barabasi_albert(1, seed=0).count(5)
    8
    """

    k: int
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        integer(self.k, "k", 1)
        required_seed(self.seed, "barabasi_albert")

    def compute_rows(self, n: int, m: int) -> Rows:
        check_square(self, n, m)
        check_memory(16 * n * self.k, f"{self.k:,} random edges for each of {n:,} tokens")
        integer(2 * self.k * n, "the ends of all edges")
        i, j = self._sampled_edges(n)
        return rows_of_pairs(n, m, np.concatenate([i, j]), np.concatenate([j, i]))

    def _sampled_edges(self, n: int) -> tuple[Ints, Ints]:
        """Edge e links token 1 + e div k to the token at a sampled end of an earlier edge.

        End 2e of edge e is its newer token, 2e + 1 its older one; the edges of token 1 all go to 0.
        """
        tokens = np.arange(1, max(n, 1))
        young = np.repeat(tokens, self.k)
        bits = words(required_seed(self.seed, ""), tokens, 0, self.k).ravel()
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
