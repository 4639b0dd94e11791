"""The graph of a rank: rows of its queries, its own keys and those it fetched renumbered."""

from __future__ import annotations

import numpy as np

from edgewise.distributed.needs import RUNS
from edgewise.distributed.token_sets import TokenSet
from edgewise.layouts import AND, Rows, combine, trapezoids
from edgewise.layouts.rows import rows_of_pairs


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
