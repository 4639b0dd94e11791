"""Distances, connected components and triangles: exact, or estimated from a sample of tokens."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from edgewise.layouts import Membership, Rows
from edgewise.layouts.ragged import Bools, Ints, owners
from edgewise.measures.quotient import MatVec, QuotientGraph

EFFORT = 100_000_000  # edges traversed, about a second
MAX_STARTS, MIN_STARTS = 64, 3
MOST_TRIANGLES = 40_000_000
TOKENS, PAIRS = 1024, 32  # sampled, and pairs of neighbours of each


@dataclass(frozen=True)
class Hops:
    """The mean number of tokens at distance 0, 1, 2, ... of a token.

    `longest` and `shortest` are the largest and least eccentricity of the starts.
    """

    level: np.ndarray
    longest: int
    shortest: int
    starts: int
    complete: bool
    cut: bool = False

    @property
    def average(self) -> float:
        """The mean distance to another reachable token."""
        others = self.level[1:].sum()
        return float((np.arange(len(self.level)) * self.level).sum() / others) if others else 0.0

    def with_neighbours(self, mean: float) -> "Hops":
        """An estimate corrected by the known mean number of neighbours."""
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


def hops_between(graph: QuotientGraph, among: Ints | None = None) -> Hops:
    """The distances in a listed graph between the nodes `among`, by default all."""
    chosen = np.arange(graph.count) if among is None else among
    chosen = chosen[graph.starts[chosen] > 0]
    traversed = len(graph.index) + 8 * graph.count
    affordable = max(EFFORT // max(traversed, 1), MIN_STARTS)
    if len(chosen) <= affordable:
        levels = [_levels(graph, int(one)) for one in chosen]
        return _averaged(levels, graph.starts[chosen].astype(float), complete=True)
    ends, sampled = _sample(graph, chosen, min(affordable, MAX_STARTS))
    levels = [_levels(graph, int(one)) for one in (*ends, *sampled)]
    return _averaged(levels, np.repeat([0.0, 1.0], [len(ends), len(sampled)]), complete=False)


def _sample(graph: QuotientGraph, chosen: Ints, count: int) -> tuple[Ints, Ints]:
    """The first and last token and that of largest degree, for bounds; others at random."""
    ends = np.array([chosen[0], chosen[-1], chosen[np.argmax(graph.degree[chosen])]])
    tokens = np.cumsum(graph.starts[chosen])
    sampled = np.searchsorted(
        tokens, stratified_sample(int(tokens[-1]), max(count - 3, 1)), side="right"
    )
    return ends, chosen[sampled]


def stratified_sample(n: int, count: int) -> Ints:
    """`count` of n tokens, one from each stratum of n / count consecutive ones."""
    offset = np.random.Generator(np.random.Philox(0)).random(count)
    return np.asarray((np.arange(count) + offset) * n // count, np.int64)


def _levels(graph: QuotientGraph, start: int) -> np.ndarray:
    """The number of tokens at each distance of one token of node `start`."""
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
    if twins:  # they are adjacent
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


def hops_by_matvec(columns: Rows) -> Hops:
    """The distances in a graph too dense to list: each hop is a matrix–vector product."""
    product = MatVec(columns)
    n = columns.n
    left = max(2 * EFFORT // product.cost, 16)  # products
    sampled = stratified_sample(n, min(n, MAX_STARTS))
    found: list[np.ndarray] = []
    cut = False
    for start in (0, n - 1, *np.random.Generator(np.random.Philox(3)).permutation(sampled)):
        if left > 0 or len(found) < MIN_STARTS:
            most = max(left, 4)
            layers = layers_from(product, int(start), most)
            found.append(np.array([len(layer) for layer in layers], float))
            cut |= len(found[-1]) > most
            left -= len(found[-1])
    weight = np.repeat([0.0, 1.0], [2, len(found) - 2])
    return replace(_averaged(found, weight, complete=False), cut=cut)


def layers_from(product: MatVec, start: int, most: int) -> Iterator[Ints]:
    """The tokens at distance 0, 1, 2, ... of one, up to `most` hops."""
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


@dataclass(frozen=True)
class Components:
    """The number of components, and the tokens and nodes of the largest."""

    count: int
    tokens: int
    largest: Ints


def components_of(graph: QuotientGraph) -> Components:
    """The components of a listed symmetric graph."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(graph.matrix, directed=False)
    tokens = np.bincount(label, graph.size).astype(np.int64)
    # An isolated node of several twins is as many components as it has tokens.
    alone = (graph.degree == 0) & (graph.size > 1)
    extra = int((graph.size[alone] - 1).sum())
    tokens[label[alone]] = 1
    return _components(count + extra, label, tokens)


def _components(count: int, label: Ints, tokens: Ints) -> Components:
    largest = int(np.argmax(tokens))
    return Components(count, int(tokens[largest]), np.flatnonzero(label == largest))


def components_by_rows(rows: Rows) -> Components:
    """The same for a graph too dense to list: the keys of a progression are connected, so the edges
    from its row to the first key, and from each key to the next, are enough."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    wide = rows.expand()
    heads, tails = [owners(wide.ptr)], [wide.start]
    for step in np.unique(wide.step).tolist():
        some = wide.step == step
        last = wide.start[some] + (wide.size[some] - 1) * step
        turns = -(-rows.m // step)
        opened = np.bincount(wide.start[some], minlength=turns * step)
        opened -= np.bincount(last, minlength=turns * step)
        tied = np.flatnonzero(np.cumsum(opened.reshape(turns, step), axis=0).ravel() > 0)
        heads.append(tied)
        tails.append(tied + step)
    i, j = np.concatenate(heads), np.concatenate(tails)
    graph = coo_array((np.ones(len(i), np.int8), (i, j)), shape=(rows.n, rows.n))
    count, label = connected_components(graph, directed=False)
    return _components(count, label, np.bincount(label))


def exact_clustering(graph: QuotientGraph, among: Ints) -> tuple[float, str] | None:
    """The mean over tokens of 2·triangles / (degree·(degree - 1)), 0 below two neighbours.

    None where counting the triangles would take too long.
    """
    from scipy.sparse import csr_array, triu

    rank = np.empty(graph.count, np.int64)
    rank[np.lexsort((np.arange(graph.count), np.diff(graph.ptr)))] = np.arange(graph.count)
    order = np.argsort(rank)
    up = csr_array(triu(graph.matrix[order][:, order], k=1))  # from low degree to high
    out, into = np.diff(up.indptr), np.bincount(up.indices, minlength=graph.count)
    if float((out.astype(float) * (into + out)).sum()) > MOST_TRIANGLES:
        return None
    size, loop = graph.size[order].astype(float), graph.loop[order].astype(float)
    closed = _closed_walks(up, size, loop)
    degree = graph.degree[order]
    pairs = np.maximum(degree * (degree - 1), 1)
    each = np.where(degree > 1, closed / pairs, 0)
    inside = np.zeros(graph.count, bool)
    inside[among] = True
    weight = size * inside[order]
    return float((each * weight).sum() / weight.sum()), "exact"


def _closed_walks(up: Any, size: np.ndarray, loop: np.ndarray) -> np.ndarray:
    """Walks of three edges from a token of each node back to it, along no self-loop."""
    from scipy.sparse import csr_array, diags_array

    weigh = diags_array(size)
    first = csr_array((up @ weigh @ up).multiply(up))  # u → v → w with u → w
    middle = csr_array((up.T @ weigh @ up).multiply(up))  # u → v, u → w with v → w
    three = 2 * (first @ size + middle @ size + np.asarray(first.T @ size))
    # Two of the three tokens, or all, in one node: adjacent twins.
    both = up + up.T
    others = size - 1
    with_own = 2 * loop * others * np.asarray(both @ size)
    with_theirs = np.asarray(both @ (size * loop * others))
    own = loop * others * np.maximum(size - 2, 0)
    return np.asarray(three + with_own + with_theirs + own)


def estimated_clustering(rows: Rows, loop: Bools, among: Ints) -> tuple[float, str]:
    """The same, estimated from random pairs of neighbours."""
    random = np.random.Generator(np.random.Philox(2))
    token = random.choice(among, TOKENS)
    wide = rows.expand()
    size = wide.size
    before = np.concatenate([[0], np.cumsum(size)])
    degree = before[wide.ptr[token + 1]] - before[wide.ptr[token]]
    token, degree = token[degree - loop[token] > 1], degree[degree - loop[token] > 1]
    if not len(token):
        return 0.0, f"estimate: {TOKENS} tokens"
    sampled = (random.random((2, len(token), PAIRS)) * degree[:, None]).astype(np.int64)
    place = before[wide.ptr[token]][None, :, None] + sampled
    run = np.searchsorted(before, place, side="right") - 1
    key = wide.start[run] + (place - before[run]) * wide.step[run]
    i, j = key
    joined = Membership(rows)(torch.from_numpy(i.ravel()), torch.from_numpy(j.ravel()))
    proper = (i != j) & (i != token[:, None]) & (j != token[:, None])
    hit = joined.numpy().reshape(i.shape) & proper
    each = hit.sum(axis=1) / np.maximum(proper.sum(axis=1), 1)
    share = len(token) / TOKENS
    return float(each.mean() * share), f"estimate: {TOKENS} tokens, {PAIRS} pairs of neighbours"
