"""Demand: the part of a grounded plan that some rows of its outputs need, found backwards.

The steps of a plan are looked at from the last to the first: the rows of a relation that are wanted
need the rule heads behind them, those their groundings, and those the rows that they read. Then a
smaller plan is put together, from the first step to the last. Values and gradients are those of
the full plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule, relabelled
from edgewise.ground.index import Index, Keys
from edgewise.ground.magic_sets import LOOK_UP, distinct_below
from edgewise.ground.source import Source
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.layouts.ragged import Ints, Segments, pointer, ranges
from edgewise.physical.merge import Merge, merge_of


class Chooser(Protocol):
    """Chooses groundings of rule heads, where not all of them are taken."""

    def __call__(self, start: Ints, count: Ints, hop: int) -> tuple[Ints, Ints]: ...

    def check(self, hops: int) -> None: ...

    def refuse(self, relation: str, reason: str, hop: int) -> None: ...


def places_among(rows: Tensor, wanted: Tensor, size: int) -> Tensor:
    """The place of each wanted row among ascending `rows`, which are below `size`; -1: none."""
    if len(wanted) * LOOK_UP < size:
        at = torch.searchsorted(rows, wanted).clamp(max=max(len(rows) - 1, 0))
        return torch.where(rows[at] == wanted, at, -1) if len(rows) else torch.full_like(wanted, -1)
    table = torch.full((size + 1,), -1)  # the last is read for -1
    table[rows] = torch.arange(len(rows))
    return table[wanted]


def keys_at(index: Index, rows: Tensor) -> Tensor:
    """The keys of some rows, without listing those of all.

    >>> from edgewise.ground.index import Grid
    >>> keys_at(Grid((2, 3)), torch.tensor([1, 5])).tolist()
    [[0, 1], [1, 2]]
    """
    if isinstance(index, Keys):
        return index.keys[rows]
    if not index.sizes:
        return torch.zeros(len(rows), 0, dtype=torch.int64)
    return torch.stack(torch.unravel_index(rows, index.sizes), 1)


def is_all(rows: Tensor, size: int) -> bool:
    """Whether ascending rows are all of them."""
    return len(rows) == size


@dataclass(frozen=True, eq=False)
class GroundIndex:
    """The groundings of each head of a ground rule, and the heads of each softmax."""

    ground: GroundRule

    @property
    def rows(self) -> int:
        return self.ground.heads.rows

    @property
    def relations(self) -> set[str]:
        return set(reads(self.ground).values())

    @cached_property
    def several(self) -> bool:
        """Whether a rule head can have more than one grounding, whatever the data."""
        head = {v.name for v in variables(self.ground.rule.head.terms)}
        return not head.issuperset(self.ground.body.visible)

    @cached_property
    def order(self) -> Tensor | None:
        """The groundings by head; None where they are in that order."""
        parts = self.ground.segments
        return None if parts.ordered else parts.ids.argsort(stable=True)

    @cached_property
    def ptr(self) -> Ints:
        sizes: Ints = self.ground.segments.sizes.numpy()
        return pointer(sizes)

    def with_groups(self, heads: Tensor) -> Tensor:
        """Heads, and those that a softmax normalises together with them."""
        groups = self.ground.groups
        if groups is None:
            return heads
        held = torch.zeros(groups.count, dtype=torch.bool)
        held[groups.ids[heads]] = True
        return held[groups.ids].nonzero()[:, 0]

    def taken(self, heads: Tensor, choose: Chooser | None = None, hop: int = 0) -> GroundRule:
        """The ground rule of some heads alone: all of their groundings, or chosen ones."""
        ground, rows = self.ground, heads.numpy()
        start = self.ptr[rows]
        count = self.ptr[rows + 1] - start
        if choose is None:
            chosen = torch.from_numpy(ranges(start, count))
        else:
            which, count = choose(start, count, hop)
            chosen = torch.from_numpy(which)
        chosen = chosen if self.order is None else self.order[chosen]
        even = bool((count == count[0]).all()) if len(count) else False
        ids = torch.from_numpy(np.repeat(np.arange(len(rows)), count))
        groups = ground.groups
        return replace(
            ground,
            count=len(chosen),
            rows={at: chosen if old is None else old[chosen] for at, old in ground.rows.items()},
            numbers={at: numbers[chosen] for at, numbers in ground.numbers.items()},
            heads=Keys(keys_at(ground.heads, heads)),
            segments=Segments(len(rows), ids, int(count[0]) if even else None),
            groups=None if groups is None else relabelled(groups.ids[heads]),
            before=None,
        )


def reads(ground: GroundRule) -> dict[int, str]:
    """The relations whose rows a ground rule reads, by the place of the literal."""
    found = {}
    for at in ground.rows:
        literal = ground.body.literals[at]
        if isinstance(literal, nodes.Atom):
            found[at] = literal.relation
    return found


@dataclass
class Need:
    """The rows of each relation that are needed so far, and how far from the outputs they are."""

    sizes: Mapping[str, int]
    rows: dict[str, list[Tensor]] = field(default_factory=dict)
    hops: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, Tensor] = field(default_factory=dict)  # when all that reads it is known

    def size(self, relation: str) -> int:
        """The rows of a relation; none where neither data nor rules have any."""
        return self.sizes.get(relation, 0)

    def add(self, relation: str, rows: Tensor, hop: int = 0) -> None:
        self.rows.setdefault(relation, []).append(rows)
        self.hops[relation] = max(self.hops.get(relation, 0), hop)

    def add_all(self, relation: str) -> None:
        if relation in self.sizes:
            self.add(relation, torch.arange(self.sizes[relation]))

    def add_reads(
        self, ground: GroundRule, hop: int = 0, only: Collection[str] | None = None
    ) -> None:
        for at, relation in reads(ground).items():
            if only is not None and relation not in only:
                continue
            rows = ground.rows[at]
            self.add(relation, torch.arange(ground.count) if rows is None else rows, hop)

    def of(self, relation: str) -> Tensor:
        """The rows of a relation, which are then not added to any more."""
        if relation not in self.chosen:
            rows = self.rows.pop(relation, [])
            self.chosen[relation] = distinct_below(rows, self.size(relation))
        return self.chosen[relation]

    def moved(self, ground: GroundRule) -> GroundRule:
        """The same ground rule where relations have the needed rows alone."""
        rows, sizes = dict(ground.rows), dict(ground.sizes)
        for at, relation in reads(ground).items():
            some, read, size = self.of(relation), ground.rows[at], self.size(relation)
            sizes[at] = len(some)
            if not is_all(some, size):
                read = torch.arange(ground.count) if read is None else read
                read = places_among(some, read, size)
            rows[at] = read if read is None or not in_order(read, len(some)) else None
        return replace(ground, rows=rows, sizes=sizes)


def in_order(rows: Tensor, count: int) -> bool:
    """Whether rows are all of them, one after another."""
    return len(rows) == count and bool((rows == torch.arange(count)).all())


@dataclass(frozen=True, eq=False)
class MergeIndex:
    """Where the rows of a relation come from: the row of each part, -1: none, None: the same."""

    merge: Merge
    sizes: tuple[int, ...]  # rows of each part

    @cached_property
    def places(self) -> list[Tensor | None]:
        classes, count = self.merge.classes, len(self.sizes)
        if len(classes) == 1 and all(rows is None for rows in classes[0][1]):
            return [None if p in classes[0][0] else self._none() for p in range(count)]
        found = [self._none() for _ in range(count)]
        for members, rows, here in classes:
            for part, some in zip(members, rows, strict=True):
                found[part][here] = torch.arange(len(here)) if some is None else some
        return list(found)

    def _none(self) -> Tensor:
        return torch.full((self.merge.rows,), -1)

    def heads(self, rows: Tensor) -> list[Tensor]:
        """The rows of each part that rows of the relation need."""
        found = []
        for at, size in zip(self.places, self.sizes, strict=True):
            some = rows if at is None else at[rows]
            found.append(some if at is None else distinct_below([some[some >= 0]], size))
        return found

    def taken(self, rows: Tensor, parts: Sequence[Tensor]) -> tuple[Merge, list[int]]:
        """The rows put together from some rows of each part; and the parts that have any."""
        used = [p for p, some in enumerate(parts) if len(some)]
        facts = self.merge.facts and 0 in used
        places: list[Tensor | None] = []
        for p in used:
            at = self.places[p]
            local = places_among(parts[p], rows if at is None else at[rows], self.sizes[p])
            same = len(parts[p]) == len(rows) and in_order(local, len(rows))
            places.append(None if same else local)
        index = Keys(keys_at(self.merge.index, rows))
        sizes = [len(parts[p]) for p in used]
        relation, line = self.merge.relation, self.merge.line
        return merge_of(relation, index, len(rows), places, sizes, facts, line), used


def source_at(source: Source, rows: Tensor) -> tuple[Source, Tensor | None]:
    """Data with some of its rows, and which rows to take of what it gives at every step."""
    if is_all(rows, source.index.rows):
        return source, None
    if source.dense or source.weights:
        return source, rows
    order = rows if source.order is None else source.order[rows]
    return replace(source, index=Keys(keys_at(source.index, rows)), order=order), None
