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

    def __call__(self, parts: Sequence[Column], training: bool) -> Column:
        if not self.index.rows:
            return parts[0]
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
        for function in listed:
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, training)
        return value

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
    return Merge(relation, index, tuple(classes), facts, line, order)


def _all_or(rows: Tensor, count: int) -> Tensor | None:
    """Some rows of a part; None if they are all of them, in order."""
    whole = len(rows) == count and bool((rows == torch.arange(count)).all())
    return None if whole else rows


def _rows(part: Index, whole: list[Tensor], index: Index) -> Tensor:
    if not part.rows:
        return torch.full((index.rows,), -1)
    return locate(part, whole) if whole else torch.zeros(index.rows, dtype=torch.int64)
