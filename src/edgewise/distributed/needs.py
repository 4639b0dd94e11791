"""The keys that the queries of a rank attend to, from the rows of its graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewise.distributed.local_graphs import RUNS, rows_of_tokens
from edgewise.distributed.shards import Shards
from edgewise.distributed.stepped_runs import SteppedRuns
from edgewise.distributed.token_sets import EMPTY, TokenSet
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import class_of, symbolic_step
from edgewise.layouts import Trapezoids, joined
from edgewise.layouts.ragged import Ints

WORTH = 0.75  # parts are computed for less than this share of the rows that are fetched otherwise
PARTS = 1.5  # rows of keys that a query in parts costs each rank, about


@dataclass(frozen=True, eq=False)
class Needs:
    """Of one rank: the keys that it fetches, and its queries that are computed in parts, on the
    ranks of their keys. Where queries are computed on ranks that do not have them: those of this
    rank, and all keys that they read, here or not."""

    keys: TokenSet
    parts: TokenSet = EMPTY
    queries: TokenSet = EMPTY


def needs_of(graph: Pattern, shards: Shards, rank: int, *, split: bool = True) -> Needs:
    """What a rank needs of the others; without `split` no query is computed in parts.

    >>> from edgewise.graphs import window
    >>> needs_of(window(2), Shards(12, 3), 1).keys.list().tolist()
    [2, 3, 8, 9]
    """
    mine = shards.tokens(rank)
    if not mine.count:
        return Needs(EMPTY)
    if of_classes := _of_classes(graph, shards, rank):
        return Needs(of_classes.keys - mine)
    p = _of_tokens(graph, shards.n, mine)
    if split:
        long = _long(p, mine, shards.ranks)
        parts = TokenSet.of(p.top[long], p.bottom[long])
        return Needs(_reached(_cut(p, parts)) - mine, parts)
    return Needs(_reached(p) - mine)


def moved_needs(graph: Pattern, shards: Shards, rank: int) -> Needs:
    """What a rank reads that computes the queries which `shards` give it, of whatever rank.

    >>> from edgewise.graphs import causal, window
    >>> found = moved_needs(causal() - window(0), Shards(4, 2), 1)
    >>> found.queries.list().tolist(), found.keys.list().tolist()
    ([2, 3], [0, 1, 2])
    """
    of_classes = _of_classes(graph, shards, rank)
    return of_classes or _read_by(graph, shards.n, shards.tokens(rank))


def group_needs(graph: Pattern, home: Shards, rank: int, groups: int) -> Needs:
    """What a rank reads of one group of heads, of which this many ranks after one another share
    their queries."""
    if groups == home.ranks:
        every = TokenSet.of([0], [home.n])
        return Needs(every, queries=every)
    first, tokens = rank - rank % groups, EMPTY
    for one in range(first, first + groups):
        tokens = tokens | home.tokens(one)
    return _read_by(graph, home.n, tokens)


def block_needs(home: Shards, rank: int, groups: int, columns: int) -> Needs:
    """The block of queries and keys of a rank, of one group of heads: pairs of pieces, so that
    blocks of a causal graph have as many pairs.

    >>> found = block_needs(Shards(16, 4), 1, 1, 2)
    >>> found.queries.list().tolist(), found.keys.list().tolist()
    ([0, 1, 2, 3, 12, 13, 14, 15], [4, 5, 6, 7, 8, 9, 10, 11])
    """
    row, column = divmod(rank // groups, columns)
    queries = Shards(home.n, home.ranks // groups // columns, paired=True)
    return Needs(Shards(home.n, columns, paired=True).tokens(column), queries=queries.tokens(row))


def _read_by(graph: Pattern, n: int, queries: TokenSet) -> Needs:
    """Those of some queries that have keys, and these."""
    if not queries.count:
        return Needs(EMPTY)
    p = _of_tokens(graph, n, queries)
    return Needs(_reached(p), queries=TokenSet.of(p.top, p.bottom))


def _of_tokens(graph: Pattern, n: int, tokens: TokenSet) -> Trapezoids:
    """The rows of queries as trapezoids of their tokens."""
    if len(tokens.start) <= RUNS:
        found = []
        for first, last in zip(tokens.start.tolist(), tokens.stop.tolist(), strict=True):
            p = graph.rows_between(n, n, first, last).trapezoids()
            ends = (p.start, p.stop, p.dstart, p.dstop, p.step)
            found.append(Trapezoids(p.top + first, p.bottom + first, *ends))
        return joined(*found)
    p, at = rows_of_tokens(graph, n, tokens).trapezoids(), tokens.list()
    return Trapezoids(at[p.top], at[p.top] + 1, p.start, p.stop, p.dstart, p.dstop, p.step)


def _of_classes(graph: Pattern, shards: Shards, rank: int) -> Needs | None:
    """The queries of a rank that have keys, and these, where ranks have residue classes in which
    all pairs of the graph are."""
    step, n = shards.step, shards.n
    if step == 1 or symbolic_step(graph) % step or not shards.count(rank):
        return None
    inner = class_of(graph, step)
    if inner is None:
        return None
    keys, queries, tokens = [], [], shards.tokens(rank).list()
    for residue in np.unique(tokens % step).tolist():
        of_class = tokens[tokens % step == residue] // step
        size, first, last = -(-(n - residue) // step), int(of_class[0]), int(of_class[-1]) + 1
        p = inner.rows_between(size, size, first, last).trapezoids()
        keys.append(_reached(p).list() * step + residue)
        queries.append((TokenSet.of(p.top, p.bottom).list() + first) * step + residue)
    both = (TokenSet.of_tokens(np.sort(np.concatenate(each))) for each in (keys, queries))
    return Needs(next(both), queries=next(both))


def _reached(p: Trapezoids) -> TokenSet:
    """All keys of all rows."""
    return SteppedRuns.of(p).every()


def _long(p: Trapezoids, mine: TokenSet, ranks: int) -> Ints:
    """The trapezoids of slabs whose queries are cheaper in parts than the keys they fetch.

    A rank that has such queries assumes that all have as many. Slabs are tried from those with most
    remote keys for each query on, by powers of two.
    """
    none = np.zeros(0, np.int64)
    runs = SteppedRuns.of(p)
    reach = runs.many * runs.wide - runs.inside(mine)
    tops, slab = np.unique(p.top, return_inverse=True)
    height = np.zeros(len(tops), np.int64)
    np.maximum.at(height, slab, p.bottom - p.top)
    of_slab = np.bincount(slab, reach, minlength=len(tops))
    worth = of_slab / height
    if not len(worth) or worth.max() <= PARTS * ranks:
        return none
    fetched_all = float((runs.every() - mine).count)
    best, cost = none, fetched_all
    level = float(2 ** int(np.log2(worth.max())))
    while level > PARTS * ranks / 2 and level >= worth.max() / 1024:
        long = worth >= level
        fetched = (runs[~long[slab]].every() - mine).count
        total = fetched + PARTS * ranks * int(height[long].sum())
        if total < min(cost, WORTH * fetched_all):
            best, cost = np.flatnonzero(long[slab]), total
        level /= 2
    return best


def _cut(p: Trapezoids, parts: TokenSet) -> Trapezoids:
    """Those of queries that are not computed in parts."""
    return p[~parts.covers(p.top)] if len(parts.start) else p
