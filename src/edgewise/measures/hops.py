"""How far tokens are from each other: breadth-first search, from all of them or from a sample."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints
from edgewise.measures.product import Product
from edgewise.measures.twins import Twins

EFFORT = 100_000_000  # edges passed over, about a second
MOST_STARTS, FEWEST_STARTS = 64, 3


@dataclass(frozen=True)
class Hops:
    """How many tokens are at distance 0, 1, 2, ... of a token, on average.

    `longest` and `shortest` are the largest and least distance of a start to the token farthest
    from it.
    """

    level: np.ndarray
    longest: int
    shortest: int
    starts: int
    complete: bool
    cut: bool = False

    @property
    def average(self) -> float:
        """The mean distance to another token that is reached."""
        others = self.level[1:].sum()
        return float((np.arange(len(self.level)) * self.level).sum() / others) if others else 0.0

    def with_neighbours(self, mean: float) -> "Hops":
        """A sample, corrected by what is known of all: how many neighbours a token has."""
        others, far = self.level[1:].sum(), self.level[2:].sum()
        if self.complete or not far:
            return self
        level = np.concatenate([[1.0, mean], self.level[2:] * ((others - mean) / far)])
        return replace(self, level=level)

    @property
    def source(self) -> str:
        if self.cut:
            return f"from {self.starts} tokens, the first {len(self.level) - 1} hops"
        return f"from {self.starts} tokens"


def hops_between(graph: Twins, among: Ints | None = None) -> Hops:
    """The distances in a listed graph, of the nodes `among` (all unless given)."""
    chosen = np.arange(graph.count) if among is None else among
    chosen = chosen[graph.stands[chosen] > 0]
    passed = len(graph.index) + 8 * graph.count
    room = max(EFFORT // max(passed, 1), FEWEST_STARTS)
    if len(chosen) <= room:
        levels = [_levels(graph, int(one)) for one in chosen]
        return _averaged(levels, graph.stands[chosen].astype(float), complete=True)
    ends, lot = _sample(graph, chosen, min(room, MOST_STARTS))
    levels = [_levels(graph, int(one)) for one in (*ends, *lot)]
    return _averaged(levels, np.repeat([0.0, 1.0], [len(ends), len(lot)]), complete=False)


def _sample(graph: Twins, chosen: Ints, count: int) -> tuple[Ints, Ints]:
    """The first token, the last, and that with the most edges, for bounds; others by lot."""
    ends = np.array([chosen[0], chosen[-1], chosen[np.argmax(graph.degree[chosen])]])
    tokens = np.cumsum(graph.stands[chosen])
    lot = np.searchsorted(tokens, by_lot(int(tokens[-1]), max(count - 3, 1)), side="right")
    return ends, chosen[lot]


def by_lot(n: int, count: int) -> Ints:
    """`count` of n tokens, one from each stretch of n / count: what changes along the sequence is
    seen in proportion."""
    within = np.random.Generator(np.random.Philox(0)).random(count)
    return np.asarray((np.arange(count) + within) * n // count, np.int64)


def _levels(graph: Twins, start: int) -> np.ndarray:
    """How many tokens are at each distance of one token of node `start`."""
    from scipy.sparse.csgraph import breadth_first_order

    order, before = breadth_first_order(graph.matrix, start)
    place = np.zeros(graph.count, np.int64)
    place[order] = np.arange(len(order))
    parent = place[np.maximum(before[order], 0)]
    parent[0] = -1
    # Parents come in order, so the next level begins after the children of all levels but this.
    after = np.searchsorted(parent, np.arange(len(order))).tolist()
    borders = [0, 1]
    while borders[-1] < len(order):
        borders.append(after[borders[-1]])
    total = np.concatenate([[0], np.cumsum(graph.size[order])])[borders]
    level = np.diff(total).astype(float)
    twins = float(graph.size[start] - 1)
    if twins:  # they hear each other
        level = np.append(level, 0.0) if len(level) == 1 else level
        level[0], level[1] = 1.0, level[1] + twins
    return level


def _averaged(levels: list[np.ndarray], weight: np.ndarray, complete: bool) -> Hops:
    longest = max(len(level) for level in levels)
    total = np.zeros(longest)
    for level, share in zip(levels, weight, strict=True):
        total[: len(level)] += share * level
    shortest = min(len(level) for level in levels) - 1
    starts = int(weight.sum()) if complete else len(levels)
    return Hops(total / weight.sum(), longest - 1, shortest, starts, complete)


def hops_by_products(columns: Rows) -> Hops:
    """The distances in a graph too dense to list: each hop is a product with the frontier."""
    product = Product(columns)
    n = columns.n
    left = max(2 * EFFORT // product.cost, 16)  # products
    lot = by_lot(n, min(n, MOST_STARTS))
    found: list[np.ndarray] = []
    cut = False
    for start in (0, n - 1, *np.random.Generator(np.random.Philox(3)).permutation(lot)):
        if left > 0 or len(found) < FEWEST_STARTS:
            most = max(left, 4)
            found.append(_spread(product, int(start), most))
            cut |= len(found[-1]) > most
            left -= len(found[-1])
    weight = np.repeat([0.0, 1.0], [2, len(found) - 2])
    hops = _averaged(found, weight, complete=False)
    return Hops(hops.level, hops.longest, hops.shortest, hops.starts, False, cut)


def _spread(product: Product, start: int, most: int) -> np.ndarray:
    return np.array([len(layer) for layer in layers_from(product, start, most)], float)


def layers_from(product: Product, start: int, most: int) -> Iterator[Ints]:
    """The tokens at distance 0, 1, 2, ... of one, `most` hops at the most."""
    unseen = np.ones(product.rows.n, bool)
    layer = np.array([start])
    for _ in range(most + 1):
        if not len(layer):
            return
        yield layer
        unseen[layer] = False
        frontier = np.zeros(product.rows.n, np.int64)
        frontier[layer] = 1
        layer = np.flatnonzero((product(frontier) > 0) & unseen)
