"""The graph of a rank: rows of its queries, its own keys and those it fetched renumbered."""

from __future__ import annotations

import numpy as np

from edgewise.distributed.token_sets import TokenSet
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import AND, Rows, combine, trapezoids
from edgewise.layouts.ragged import ranges
from edgewise.layouts.rows import rows_of_pairs

RUNS = 64  # of a rank's tokens: beyond, the rows of all tokens are computed at once


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


def on_keys(rows: Rows, keys: TokenSet) -> Rows:
    """The pairs with some keys, these numbered from 0."""
    if not len(keys.start):
        return combine(rows.n, 0, trapezoids((0, 0), 0, 0), trapezoids((0, 0), 0, 0), AND)
    if (rows.step == 1).all() and len(keys.start) <= RUNS:
        box = trapezoids((0, rows.n), keys.start, keys.stop)
        cut = combine(rows.n, rows.m, rows.trapezoids(), box, AND)
        # a run of keys stays one: intervals of `keys` do not touch
        start = keys.place(cut.start) if len(cut.start) else cut.start
        stop = start + cut.stop - cut.start
        ends = (start, stop, cut.dstart, cut.dstop, cut.step)
        return Rows(rows.n, keys.count, cut.top, cut.ptr, *ends)
    i, j = rows.edges().numpy()
    some = keys.covers(j)
    return rows_of_pairs(rows.n, keys.count, i[some], keys.place(j[some]))


def without_rows(rows: Rows, empty: TokenSet) -> Rows:
    """The same with some rows empty."""
    if not len(empty.start):
        return rows
    all_rows = TokenSet.of([0], [rows.n])
    box = all_rows - empty
    p = trapezoids((box.start, box.stop), 0, rows.m)
    if (rows.step == 1).all():
        return combine(rows.n, rows.m, rows.trapezoids(), p, AND)
    i, j = rows.edges().numpy()
    some = ~empty.covers(i)
    return rows_of_pairs(rows.n, rows.m, i[some], j[some])


def rows_with_keys(rows: Rows) -> TokenSet:
    """The rows that are not empty."""
    return TokenSet.of_tokens(np.flatnonzero(rows.degrees()))
