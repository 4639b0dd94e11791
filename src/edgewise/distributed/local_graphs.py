"""The graph of a rank: rows of its queries, its own keys and those it fetched renumbered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgewise.distributed.token_sets import TokenSet
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import class_of, symbolic_step
from edgewise.layouts import AND, Rows, combine, compressed, trapezoids
from edgewise.layouts.ragged import Ints, pointer, ranges
from edgewise.layouts.rows import row_by_row, rows_of_pairs

RUNS = 64  # of a rank's tokens: beyond, the rows of all tokens are computed at once


def local_rows(graph: Pattern, n: int, queries: TokenSet) -> Callable[[TokenSet], Rows]:
    """The rows of some queries, as a function of the keys that they are cut to; queries and keys
    are numbered from 0."""
    rows = _rows_in_classes(graph, n, queries)
    return partial(on_keys, rows_of_tokens(graph, n, queries)) if rows is None else rows.on_keys


def count_pairs(graph: Pattern, n: int, queries: TokenSet) -> int:
    """How many pairs some queries have."""
    rows = _rows_in_classes(graph, n, queries)
    if rows is None:
        return rows_of_tokens(graph, n, queries).count()
    return int((rows.stop - rows.start).sum())


@dataclass(frozen=True, eq=False)
class _RowsInClasses:
    """Rows of a graph whose pairs are inside of residue classes, and none of them listed: query
    `row[k]` attends to the keys `residue + step·t` with start[k] ≤ t < stop[k]."""

    n: int
    step: int
    longest: int
    row: Ints
    residue: Ints
    start: Ints
    stop: Ints

    def on_keys(self, keys: TokenSet) -> Rows:
        """The pairs with some keys, these numbered from 0."""
        tokens = keys.list()
        residue, number, place = _by_class(tokens, self.step)
        codes, of_row = residue * self.longest + number, self.residue * self.longest
        first, last = (np.searchsorted(codes, of_row + end) for end in (self.start, self.stop))
        some = np.flatnonzero(first < last)
        first, last = first[some], last[some]
        opens, every = _progressions(residue, place)
        of_key, ends = np.cumsum(opens) - 1, np.append(np.flatnonzero(opens), len(tokens))
        count = of_key[last - 1] - of_key[first] + 1 if len(some) else first
        which, part = np.repeat(np.arange(len(some)), count), ranges(of_key[first], count)
        low = np.maximum(first[which], ends[part])
        high = np.minimum(last[which], ends[part + 1])
        row, start, stop = self.row[some[which]], place[low], place[high - 1] + 1
        step = np.where(high - low == 1, 1, every[low])
        order = np.lexsort((start, row))
        ptr = pointer(np.bincount(row, minlength=self.n))
        wide = row_by_row(self.n, keys.count, ptr, start[order], stop[order], step[order])
        return compressed(wide)


def _by_class(tokens: Ints, step: int) -> tuple[Ints, Ints, Ints]:
    """Tokens class by class: residues, numbers inside of their class, and where each one was."""
    place = np.argsort(tokens % step, kind="stable")
    return tokens[place] % step, tokens[place] // step, place


def _progressions(residue: Ints, place: Ints) -> tuple[np.ndarray, Ints]:
    """Which keys begin a progression of places, and the distance to the next key of it."""
    opens, apart = np.ones(len(place), bool), np.diff(place, append=0)
    opens[1:] = residue[1:] != residue[:-1]
    turns = (apart[1:-1] != apart[:-2]) & ~opens[1:-1]
    opens[2:] |= turns
    return opens, apart


def _rows_in_classes(graph: Pattern, n: int, queries: TokenSet) -> _RowsInClasses | None:
    """Of some queries, if all pairs are inside of residue classes, and the queries a few runs of
    numbers of a class."""
    step = symbolic_step(graph)
    inner = class_of(graph, step) if step > 1 and queries.count else None
    if inner is None:
        return None
    residue, number, place = _by_class(queries.list(), step)
    ends = (np.diff(residue) != 0) | (np.diff(number) != 1)
    first = np.flatnonzero(np.append(True, ends))[: len(place)]
    last = np.append(first[1:], len(place)) - 1
    size = -(-(n - residue[first]) // step)
    runs = np.stack([size, number[first], number[last] + 1])
    kinds, kind = np.unique(runs, axis=1, return_inverse=True)
    if kinds.shape[1] > RUNS:
        return None
    found = [(place[:0], place[:0], place[:0], place[:0])]
    for at, (count, low, high) in enumerate(kinds.T.tolist()):
        wide = inner.rows_between(count, count, low, high).expand()
        if (wide.step > 1).any():
            return None
        begin = first[kind.reshape(-1) == at]
        row = place[begin[:, None] + wide.slab].reshape(-1)
        parts = (np.repeat(residue[begin], len(wide.start)), wide.start, wide.stop)
        found.append((row, *(np.resize(part, len(row)) for part in parts)))
    each = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _RowsInClasses(queries.count, step, -(-n // step) + 1, *each)


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
    if len(keys.start) == 1 or ((rows.step == 1).all() and len(keys.start) <= RUNS):
        box = trapezoids((0, rows.n), keys.start, keys.stop)
        cut = combine(rows.n, rows.m, rows.trapezoids(), box, AND)
        # a run of keys stays one, since intervals of `keys` do not touch, and so does a progression
        # inside of one interval
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
    return combine(rows.n, rows.m, rows.trapezoids(), p, AND)


def rows_with_keys(rows: Rows) -> TokenSet:
    """The rows that are not empty."""
    return TokenSet.of_tokens(np.flatnonzero(rows.degrees()))
