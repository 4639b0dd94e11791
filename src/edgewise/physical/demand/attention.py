"""Demand for attention: the wanted queries, and the keys that they attend to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs import full
from edgewise.graphs.pattern import Pattern
from edgewise.ground.index import Grid, Keys
from edgewise.language.dependencies import needs
from edgewise.layouts.ragged import Bools, Ints, pointer, ranges
from edgewise.layouts.rows import (
    Rows,
    compressed,
    csr_of_rows,
    row_by_row,
    rows_of_keys,
    rows_of_pairs,
)
from edgewise.physical.attention.pairs import pairs_of
from edgewise.physical.attention.relational import RelationalStep
from edgewise.physical.attention.sides import EdgeSide, Side
from edgewise.physical.attention.step import AttentionStep, head_names
from edgewise.physical.demand.need import Chooser, GroundIndex, Need, keys_at, reads

StepKind = TypeVar("StepKind", AttentionStep, RelationalStep)


@dataclass(frozen=True, eq=False)
class listed_rows(Pattern):
    """The pairs of some rows: those of another pattern, renumbered."""

    held: Rows

    def compute_rows(self, n: int, m: int) -> Rows:
        assert (n, m) == (self.held.n, self.held.m)
        return self.held


def rows_at(rows: Rows, chosen: Ints) -> Rows:
    """Some rows, ascending, numbered from 0."""
    slab = np.searchsorted(rows.top, chosen, side="right") - 1
    count = np.diff(rows.ptr)[slab]
    which = ranges(rows.ptr[slab], count)
    down = np.repeat(chosen - rows.top[slab], count)
    start = rows.start[which] + rows.dstart[which] * down
    stop = rows.stop[which] + rows.dstop[which] * down
    return row_by_row(len(chosen), rows.m, pointer(count), start, stop, rows.step[which])


def keys_of(rows: Rows) -> Bools:
    """Which keys occur in any row."""
    ends = np.zeros(rows.m + 1, np.int64)
    plain = rows.step == 1
    np.add.at(ends, rows.start[plain], 1)
    np.add.at(ends, rows.stop[plain], -1)
    found: Bools = ends.cumsum()[:-1] > 0
    found[ranges(rows.start[~plain], rows.size[~plain], rows.step[~plain])] = True
    return found


def among_keys(rows: Rows, keys: Bools) -> Rows:
    """The same rows where only some keys are there: all that occur."""
    place, count = np.cumsum(keys) - 1, int(keys.sum())
    if bool((rows.step > 1).any()):
        i, j = rows.edges().numpy()
        return rows_of_pairs(rows.n, count, i, place[j])
    start, stop = place[rows.start], place[rows.stop - 1] + 1
    return row_by_row(rows.n, count, rows.ptr, start, stop)


def unrestricted(step: AttentionStep) -> str | None:
    """Why all rows of an attention are computed whatever is wanted of them."""
    if step.samples is not None:
        return "ragged samples are padded to one length"
    if step.order is not None:
        return "tokens are sorted by what a mask brings together"
    if step.tree is not None:
        return "the score reads the distance of a query and a key, or a number for each head"
    return None


AnySide = Side | EdgeSide


def with_sides(step: AttentionStep, change: Callable[[AnySide], Any]) -> AttentionStep:
    """The step with another expression for each of its own."""
    return replace(
        step,
        queries=tuple(map(change, step.queries)),
        keys=tuple(map(change, step.keys)),
        scales=tuple(tuple(map(change, group)) for group in step.scales),
        biases=tuple(map(change, step.biases)),
        present_keys=tuple(map(change, step.present_keys)),
        present_queries=tuple(map(change, step.present_queries)),
        value=change(step.value),
        vector=None if step.vector is None else change(step.vector),
        edge_bias=tuple(map(change, step.edge_bias)),
        edge_scale=tuple(map(change, step.edge_scale)),
    )


@dataclass(frozen=True, eq=False)
class AttendedIndex(Generic[StepKind]):
    """What attentions share: several rows are computed at once, which read several relations."""

    step: StepKind

    several = True

    @property
    def rows(self) -> int:
        return self.step.index.rows

    @property
    def relations(self) -> set[str]:
        return all_read(self.step)


@dataclass(frozen=True, eq=False)
class AttentionIndex(AttendedIndex[AttentionStep]):
    """The keys of each query of an attention."""

    @cached_property
    def pairs(self) -> Rows:
        """Of all queries; there is a pattern."""
        n, m = self.step.axes[self.step.node.query], self.step.axes[self.step.node.key]
        found: Rows = self.step.pattern.rows(n, m)
        return found

    @cached_property
    def csr(self) -> tuple[Ints, Ints]:
        """Where the keys of each query begin, and the keys."""
        csr = csr_of_rows(self.pairs)
        return csr.ptr.numpy().astype(np.int64), csr.index.numpy().astype(np.int64)

    def note_reads(self, step: AttentionStep, need: Need, hop: int) -> None:
        """The rows that an attention reads are needed: all, where its score hides some reads."""
        if unrestricted(step) is not None:
            for relation in all_read(step):
                need.add_all(relation)
            return

        def note(side: AnySide) -> AnySide:
            need.add_reads(side.step.ground, hop)
            return side

        with_sides(step, note)

    def taken(self, rows: Tensor, choose: Chooser | None, hop: int) -> tuple[AttentionStep, Tensor]:
        """The attention of the queries behind some rows, and all rows that those queries have."""
        step = self.step
        node, axes, names = step.node, step.axes, head_names(step.node)
        reason = unrestricted(step)
        if choose is not None and (reason is not None or step.pattern is None):
            choose.refuse(node.head.relation, reason or "every query attends to every key", hop)
        if reason is not None:
            return step, torch.arange(step.index.rows)
        count = axes[node.query] if step.attending is None else len(step.attending)
        grid = Grid(tuple(count if name == node.query else axes[name] for name in names))
        at = names.index(node.query)
        place = keys_at(grid, rows)[:, at].unique()
        queries = place if step.attending is None else step.attending[place]
        found = self._pairs(queries.numpy(), choose, hop)
        chosen = {node.query: queries, node.key: found.keys}

        def change(side: AnySide) -> AnySide:
            if isinstance(side, EdgeSide):
                return _edge_side(side, found.edges)
            return _side(side, chosen)

        own = _rows_along(grid, {at: place})
        both = axes | {name: len(some) for name, some in chosen.items() if some is not None}
        which = step.which
        if which is not None:
            pattern = full() if found.pattern is None else found.pattern
            which = pairs_of(pattern, both[node.query], both[node.key])
        return replace(
            with_sides(step, change),
            index=Keys(keys_at(step.index, own)),
            axes=both,
            attending=None,
            pattern=found.pattern,
            which=which,
        ), own

    def _pairs(self, queries: Ints, choose: Chooser | None, hop: int) -> _Pairs:
        """The pairs of some queries: all of them, or chosen ones."""
        step = self.step
        if step.pattern is None:
            return _Pairs(None, None, None)
        edges = None
        if choose is not None:
            ptr, every = self.csr
            edges, count = choose(ptr[queries], ptr[queries + 1] - ptr[queries], hop)
            rows = rows_of_keys(len(queries), self.pairs.m, pointer(count), every[edges])
        else:
            rows = rows_at(self.pairs, queries)
            if step.edge_bias or step.edge_scale:
                ptr = self.csr[0]
                edges = ranges(ptr[queries], ptr[queries + 1] - ptr[queries])
        keys = keys_of(rows)
        every_key = bool(keys.all())
        rows = rows if every_key else among_keys(rows, keys)
        by_edge = bool(step.edge_bias or step.edge_scale) or step.which is not None
        dense = rows.count() == rows.n * rows.m and not by_edge
        return _Pairs(
            None if dense else listed_rows(compressed(rows)),
            None if every_key else torch.from_numpy(np.flatnonzero(keys)),
            None if edges is None else torch.from_numpy(edges),
        )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of some queries as a pattern, None for all; their keys, None for all; and where they
    are among the edges of all queries."""

    pattern: Pattern | None
    keys: Tensor | None
    edges: Tensor | None


def _rows_along(grid: Grid, chosen: dict[int, Tensor]) -> Tensor:
    """The rows of a grid whose keys are chosen ones, along some of its axes."""
    found = torch.zeros((), dtype=torch.int64)
    for axis, size in enumerate(grid.sizes):
        place = chosen.get(axis)
        place = torch.arange(size) if place is None else place
        found = found.unsqueeze(-1) * size + place
    return found.flatten()


def _side(side: Side, chosen: dict[str, Tensor | None]) -> Side:
    own = {
        axis: some for axis, name in enumerate(side.names) if (some := chosen.get(name)) is not None
    }
    if not own:
        return side
    rows = _rows_along(Grid(side.sizes), own)
    sizes = tuple(len(own[axis]) if axis in own else size for axis, size in enumerate(side.sizes))
    ground = GroundIndex(side.step.ground).taken(rows)
    return replace(side, step=replace(side.step, ground=ground), sizes=sizes)


def _edge_side(side: EdgeSide, edges: Tensor | None) -> EdgeSide:
    """The values of some edges: the rows that they read, in order."""
    if edges is None:
        return side
    rows = side.rows.reshape(*side.sizes, -1)[..., edges].flatten()
    some, place = rows.unique(return_inverse=True)
    ground = GroundIndex(side.step.ground).taken(some)
    return replace(side, step=replace(side.step, ground=ground), rows=place)


def all_read(step: AttentionStep | RelationalStep) -> set[str]:
    """The relations that an attention reads."""
    found = set().union(*needs(step.node.replaces, values_only=True).values())
    for rule in step.rules():
        found |= set(reads(rule.ground).values())
    return found
