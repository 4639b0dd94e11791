"""Small-world graphs (Watts & Strogatz 1998): a ring with shortcuts."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.errors import caller
from edgewise.graphs.checks import (
    check_memory,
    check_square,
    integer,
    one_of,
    probability,
    required_seed,
)
from edgewise.graphs.errors import BadSize
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import Words, below, words
from edgewise.layouts import Rows, rows_of_pairs


@dataclass(frozen=True, repr=False)
class watts_strogatz(Pattern):
    """A ring in which each token is linked to its k/2 neighbours on each side (not to itself; to
    all others if n ≤ k + 1); each of these n·k/2 edges becomes a shortcut with probability p: its
    far end moves to a random token beyond the neighbours (`kind="rewired"`), or such an edge is
    added to the ring (`"added"`, as in BigBird's paper). Linked tokens attend to each other;
    repeated edges count once. The graph of more tokens does not extend this one.

    >>> watts_strogatz(2, 0.0, seed=0).edges(4).T.tolist()
    [[0, 1], [0, 3], [1, 0], [1, 2], [2, 1], [2, 3], [3, 0], [3, 2]]
    """

    k: int
    p: float
    kind: str = field(default="rewired", kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if integer(self.k, "k") % 2:
            raise BadSize(
                f"`k` must be even, got {self.k}", caller(), "k/2 neighbours on each side"
            )
        object.__setattr__(self, "p", probability(self.p))
        one_of(self.kind, "kind", ("rewired", "added"))
        required_seed(self.seed, "watts_strogatz")

    def compute_rows(self, n: int, m: int) -> Rows:
        check_square(self, n, m)
        half = min(self.k // 2, n // 2)
        check_memory(16 * n * (half + 1), f"{2 * half:,} edges for each of {n:,} tokens")
        i = np.repeat(np.arange(n), half)
        near = (np.arange(n)[:, None] + np.arange(1, half + 1)[None, :]).ravel() % max(n, 1)
        bits = words(required_seed(self.seed, ""), np.arange(n), 0, 2 * half)
        moved = _less_than(bits[:, :half], self.p).ravel() & (n > 2 * half + 1)
        # Among the n - 2·half - 1 tokens beyond the ring's neighbours of i.
        past = below(bits[:, half:], max(n - 2 * half - 1, 1)).ravel() + half + 1
        far = (i + past) % max(n, 1)
        if self.kind == "added":
            i, j = np.concatenate([i, i[moved]]), np.concatenate([near, far[moved]])
        else:
            j = np.where(moved, far, near)
        return rows_of_pairs(n, m, np.concatenate([i, j]), np.concatenate([j, i]))


def _less_than(bits: Words, p: float) -> np.ndarray:
    """True with probability p, to 53 bits."""
    return (bits >> np.uint64(11)) < np.uint64(int(p * 2**53))
