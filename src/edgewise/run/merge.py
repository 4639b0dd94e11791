"""The rules of one relation put together: combined by its line, facts beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.checks.mismatch import ShapeMismatch
from edgewise.ground.index import Index, distinct_rows, index_of, locate
from edgewise.language import functions, nodes
from edgewise.reference.evaluate import SUM, combination
from edgewise.run.column import Column, column, show
from edgewise.run.functions import combine, transform


@dataclass(frozen=True, eq=False)
class Merge:
    """Where the heads of each part lie in the relation, and which parts each row has.

    A part is the facts or one rule; `classes` are the rows that have the same parts: for each the
    parts, the rows of each of them, and the rows of the relation.
    """

    relation: str
    index: Index
    classes: tuple[tuple[tuple[int, ...], tuple[Tensor | None, ...], Tensor | None], ...]
    facts: bool
    line: nodes.Line | None
    order: Tensor | None = None  # row of the relation → place among the rows of all classes
    added: tuple[Tensor | None, ...] | None = None  # where parts that are summed lie, None: all

    def __call__(self, parts: Sequence[Column], training: bool) -> Column:
        if not self.index.rows:
            return parts[0]
        if self.added is not None and self._alike(parts):
            return self._transformed(Column(self._sum(parts, self.added)), training)
        found = []
        for members, rows, _ in self.classes:
            chosen = [parts[p].take(r) for p, r in zip(members, rows, strict=True)]
            found.append(self._value(members, chosen, training))
        if len(found) == 1 and self.classes[0][2] is None:
            return found[0]
        return self._assembled(found)

    def _value(self, members: tuple[int, ...], chosen: list[Column], training: bool) -> Column:
        if self.facts and members == (0,):
            return chosen[0]  # a line does not apply to facts
        listed = self.line.functions if self.line else ()
        value = combine(combination(listed) if self.line else SUM, chosen)
        return self._transformed(value, training)

    def _transformed(self, value: Column, training: bool) -> Column:
        for function in self.line.functions if self.line else ():
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, training)
        return value

    def _alike(self, parts: Sequence[Column]) -> bool:
        """Whether parts can be added as they are: one shape, a row for each of their atoms."""
        sizes = [self.index.rows if at is None else len(at) for at in self.added or ()]
        one = {(c.data.shape[0], c.shape) for c in parts}
        return len(one) == 1 and all(c.rows == n for c, n in zip(parts, sizes, strict=True))

    def _sum(self, parts: Sequence[Column], added: tuple[Tensor | None, ...]) -> Tensor:
        out = parts[added.index(None)].data
        for value, at in zip(parts, added, strict=True):
            if at is not None:
                out = out.index_add(1, at, value.data)
        return out

    def _assembled(self, found: list[Column]) -> Column:
        shapes = {c.shape for c in found}
        if len(shapes) > 1:
            raise ShapeMismatch(
                f"`{self.relation}` has values of different shapes: "
                + ", ".join(sorted(map(show, shapes))),
                help="a compiled relation has values of one shape",
            )
        batch = max(c.data.shape[0] for c in found)
        whole = torch.cat(
            [
                value.data.expand(batch, len(rows), *value.shape)
                for value, (_, _, rows) in zip(found, self.classes, strict=True)
                if rows is not None
            ],
            1,
        )
        return column(whole).take(self.order)


def merged(relation: str, parts: Sequence[Index], facts: bool, line: nodes.Line | None) -> Merge:
    """Lay the parts of a relation over each other; the first part is the facts if `facts`."""
    if len(parts) == 1 or all(part == parts[0] for part in parts[1:]):
        everyone = tuple(range(len(parts)))
        none = tuple(None for _ in parts)
        return Merge(relation, parts[0], ((everyone, none, None),), facts, line)
    arity = parts[0].arity
    tables = [
        torch.stack([p.column(c) for c in range(arity)], 1)
        if arity
        else torch.zeros(p.rows, 0, dtype=torch.int64)
        for p in parts
    ]
    index = index_of(distinct_rows(torch.cat(tables)))
    whole = [index.column(c) for c in range(arity)]
    places = torch.stack([_rows(part, whole, index) for part in parts], 1)
    have = places >= 0
    codes = (have * (1 << torch.arange(len(parts)))).sum(1)
    classes = []
    for code in torch.unique(codes).tolist():
        rows = (codes == code).nonzero()[:, 0]
        members = tuple(p for p in range(len(parts)) if code >> p & 1)
        chosen = tuple(_all_or(places[rows, p], parts[p].rows) for p in members)
        classes.append((members, chosen, rows))
    order = torch.cat([rows for _, _, rows in classes]).argsort() if classes else None
    added = _added(places, parts, facts, line)
    return Merge(relation, index, tuple(classes), facts, line, order, added)


def _added(
    places: Tensor, parts: Sequence[Index], facts: bool, line: nodes.Line | None
) -> tuple[Tensor | None, ...] | None:
    """The rows of each part where the relation is their sum and one of them has every row."""
    listed = line.functions if line else ()
    if combination(listed).name != "sum" or (facts and listed):
        return None
    found: list[Tensor | None] = []
    for p, part in enumerate(parts):
        rows = (places[:, p] >= 0).nonzero()[:, 0]
        if _all_or(places[rows, p], part.rows) is not None:
            return None
        found.append(_all_or(rows, len(places)))
    full = sum(rows is None for rows in found)
    return tuple(found) if full == 1 else None


def _all_or(rows: Tensor, count: int) -> Tensor | None:
    """Some rows of a part; None if they are all of them, in order."""
    whole = len(rows) == count and bool((rows == torch.arange(count)).all())
    return None if whole else rows


def _rows(part: Index, whole: list[Tensor], index: Index) -> Tensor:
    if not part.rows:
        return torch.full((index.rows,), -1)
    return locate(part, whole) if whole else torch.zeros(index.rows, dtype=torch.int64)
