"""The keys that the queries of a rank attend to, from the rows of its graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewise.distributed.shards import Shards
from edgewise.distributed.token_sets import EMPTY, TokenSet, count_inside
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import class_of, symbolic_step
from edgewise.layouts import Rows, Trapezoids, joined
from edgewise.layouts.ragged import Ints, ranges

RUNS = 64  # of a rank's tokens: beyond, the rows of all tokens are computed at once
WORTH = 0.75  # parts are computed for less than this share of the rows that are fetched otherwise
PARTS = 1.5  # rows of keys that a query in parts costs each rank, about


@dataclass(frozen=True, eq=False)
class Needs:
    """Of one rank: the keys that it fetches, and its queries that are computed in parts, on the
    ranks of their keys."""

    keys: TokenSet
    parts: TokenSet = EMPTY


def needs_of(graph: Pattern, shards: Shards, rank: int, *, split: bool = True) -> Needs:
    """What a rank needs of the others; without `split` no query is computed in parts.

    >>> from edgewise.graphs import window
    >>> needs_of(window(2), Shards(12, 3), 1).keys.list().tolist()
    [2, 3, 8, 9]
    """
    mine = shards.tokens(rank)
    if not mine.count:
        return Needs(EMPTY)
    of_classes = _of_classes(graph, shards, rank)
    if of_classes is not None:
        return Needs(of_classes - mine)
    p = _of_tokens(graph, shards.n, mine)
    if split:
        long = _long(p, mine, shards.ranks)
        parts = TokenSet.of(p.top[long], p.bottom[long])
        return Needs(_reached(_cut(p, parts)) - mine, parts)
    return Needs(_reached(p) - mine)


def rows_of_tokens(graph: Pattern, n: int, tokens: TokenSet) -> Rows:
    """The rows of some queries, numbered from 0."""
    if not len(tokens.start):
        return graph.rows_between(n, n, 0, 0)
    if len(tokens.start) == 1:
        return graph.rows_between(n, n, int(tokens.start[0]), int(tokens.stop[0]))
    if len(tokens.start) <= RUNS:
        spans = zip(tokens.start.tolist(), tokens.stop.tolist(), strict=True)
        return stacked([graph.rows_between(n, n, first, last) for first, last in spans])
    return chosen_rows(graph.rows(n, n), tokens)


def chosen_rows(rows: Rows, chosen: TokenSet) -> Rows:
    """Some of the rows, numbered from 0."""
    if len(chosen.start) <= RUNS:
        spans = zip(chosen.start.tolist(), chosen.stop.tolist(), strict=True)
        parts = [rows.between(first, last) for first, last in spans]
        return stacked(parts) if parts else rows.between(0, 0)
    wide, at = rows.expand(), chosen.list()
    count = np.diff(wide.ptr)[at]
    which, flat = ranges(wide.ptr[at], count), np.zeros(int(count.sum()), np.int64)
    top, ptr = np.arange(len(at) + 1), np.append(0, np.cumsum(count))
    ends = (wide.start[which], wide.stop[which], flat, flat, wide.step[which])
    return Rows(len(at), rows.m, top, ptr, *ends)


def stacked(several: list[Rows]) -> Rows:
    """Rows below one another."""
    down = np.cumsum([0, *(rows.n for rows in several)])
    along = np.cumsum([0, *(len(rows.start) for rows in several)])
    top = [rows.top[:-1] + d for rows, d in zip(several, down, strict=False)]
    ptr = [rows.ptr[:-1] + a for rows, a in zip(several, along, strict=False)]
    ends = ("start", "stop", "dstart", "dstop", "step")
    parts = [np.concatenate([getattr(rows, name) for rows in several]) for name in ends]
    tops, ptrs = np.concatenate([*top, down[-1:]]), np.concatenate([*ptr, along[-1:]])
    return Rows(int(down[-1]), several[0].m, tops, ptrs, *parts)


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


def _of_classes(graph: Pattern, shards: Shards, rank: int) -> TokenSet | None:
    """The keys of a rank where ranks have residue classes, in which all pairs of the graph are."""
    step, n = shards.step, shards.n
    if step == 1 or symbolic_step(graph) % step:
        return None
    inner = class_of(graph, step)
    if inner is None:
        return None
    found, tokens = [], shards.tokens(rank).list()
    for residue in np.unique(tokens % step).tolist():
        of_class = tokens[tokens % step == residue] // step
        size, first, last = -(-(n - residue) // step), int(of_class[0]), int(of_class[-1]) + 1
        rows = inner.rows_between(size, size, first, last)
        found.append(_reached(rows.trapezoids()).list() * step + residue)
    return TokenSet.of_tokens(np.sort(np.concatenate(found)))


def _ends(p: Trapezoids) -> tuple[Ints, Ints, Ints]:
    """Every interval of keys that some row of a trapezoid has, and the trapezoid of each."""
    height = p.bottom - p.top
    which = np.arange(len(p))
    stop = p.stop + p.dstop * (height - 1)
    if (p.step == 1).all():
        return p.start, stop, which
    wide = np.where(p.dstart == 1, height, 1)  # keys side by side at every step
    many = np.where((p.step == 1) | (wide >= p.step), 1, (p.stop - p.start - 1) // p.step + 1)
    which = np.repeat(which, many)
    start = ranges(p.start, many, p.step)
    single = (many == 1)[which]
    return start, np.where(single, stop[which], start + wide[which]), which


def _reached(p: Trapezoids) -> TokenSet:
    """All keys of all rows."""
    start, stop, _ = _ends(p)
    return TokenSet.of(start, stop)


def _long(p: Trapezoids, mine: TokenSet, ranks: int) -> Ints:
    """The trapezoids of slabs whose queries are cheaper in parts than the keys they fetch.

    A rank that has such queries assumes that all have as many. Slabs are tried from those with most
    remote keys for each query on, by powers of two.
    """
    none = np.zeros(0, np.int64)
    start, stop, which = _ends(p)
    remote = (stop - start) - count_inside(start, stop, mine)
    reach = np.bincount(which, remote, minlength=len(p))
    tops, slab = np.unique(p.top, return_inverse=True)
    height = np.zeros(len(tops), np.int64)
    np.maximum.at(height, slab, p.bottom - p.top)
    of_slab = np.bincount(slab, reach, minlength=len(tops))
    worth = of_slab / height
    if not len(worth) or worth.max() <= PARTS * ranks:
        return none
    fetched_all = float((TokenSet.of(start, stop) - mine).count)
    best, cost = none, fetched_all
    level = float(2 ** int(np.log2(worth.max())))
    while level > PARTS * ranks / 2 and level >= worth.max() / 1024:
        long = worth >= level
        rest = ~long[slab][which]
        fetched = (TokenSet.of(start[rest], stop[rest]) - mine).count
        total = fetched + PARTS * ranks * int(height[long].sum())
        if total < min(cost, WORTH * fetched_all):
            best, cost = np.flatnonzero(long[slab]), total
        level /= 2
    return best


def _cut(p: Trapezoids, parts: TokenSet) -> Trapezoids:
    """Those of queries that are not computed in parts."""
    return p[~parts.covers(p.top)] if len(parts.start) else p
