"""Filters before a join: the rows of an atom that its own conditions and small atoms leave over.

Of `e(X, Y), e(Y, Z), label(X, 3), @lt(Z, 10)` the first edges are those from nodes of label 3, the
second those to nodes below 10: a semi-join of each large atom with each that is much smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.index import TABLE, WIDEST, Index, Keys
from edgewise.ground.joins.body import Body
from edgewise.ground.joins.join import Bindings, expansion
from edgewise.language import nodes

LEAST_REDUCED = 4096  # rows; below, a join takes no longer than the filter
SMALLER = 8  # times, so that a semi-join is worth it
Extend = Callable[[int, Bindings], Bindings]


@dataclass(frozen=True)
class Reduced:
    """Some of the rows of atoms, by their places in a body: keys, and the row that each was."""

    indices: dict[int, Index]
    rows: dict[int, Tensor] = field(default_factory=dict)

    def restored(self, bindings: Bindings) -> Bindings:
        """Groundings with the rows of all of the keys."""
        rows = {
            at: self.rows[at].index_select(0, found) if at in self.rows else found
            for at, found in bindings.rows.items()
        }
        return Bindings(bindings.count, bindings.columns, rows)


def reduced(
    body: Body,
    indices: Mapping[int, Index],
    coded: Callable[[tuple[nodes.Term, ...]], tuple[nodes.Term | int, ...]],
    extend: Extend,
) -> Reduced:
    """The atoms of a body without the rows that no grounding reads."""
    found = Reduced(dict(indices))
    if all(index.rows < LEAST_REDUCED for index in indices.values()):
        return found
    known: dict[str, tuple[Keys, int]] = {}  # the smallest atom with a variable, and its place
    for at in sorted(indices, key=lambda at: indices[at].rows):
        index = indices[at]
        terms = coded(body.positive[at].terms)
        if isinstance(index, Keys):
            if index.rows >= LEAST_REDUCED:
                rows = _semi_joined(_own(body, at, terms, index, extend), terms, index, known)
                if rows is not None and len(rows) < index.rows // 2:
                    found.rows[at] = rows
                    found.indices[at] = index = index.take(rows)
            _note(known, terms, index)
    return found


def _own(
    body: Body, at: int, terms: tuple[nodes.Term | int, ...], index: Keys, extend: Extend
) -> Tensor | None:
    """The rows that satisfy constants, repeated variables and comparisons of one atom; None where
    it has none of them."""
    columns: dict[str, Tensor] = {}
    equal = []
    for p, term in enumerate(terms):
        column = index.column(p)
        if not isinstance(term, nodes.Variable):
            equal.append(column == int(term))
        elif term.name in columns:
            equal.append(column == columns[term.name])
        else:
            columns[term.name] = column
    others = [other for other in range(len(body.literals)) if _compares(body, other, columns)]
    if not equal and not others:
        return None
    bindings = Bindings(index.rows, columns, {at: torch.arange(index.rows)})
    if equal:
        bindings = bindings.where(torch.stack(equal).all(0))
    for other in others:
        bindings = extend(other, bindings)
    return bindings.rows[at]


def _compares(body: Body, at: int, columns: Mapping[str, Tensor]) -> bool:
    """Whether a literal is a comparison of these columns alone."""
    literal = body.literals[at]
    names = set(body.names[at])
    comparison = isinstance(literal, nodes.SpecialAtom) and literal.function is None
    return comparison and bool(names) and names <= columns.keys()


def _semi_joined(
    rows: Tensor | None,
    terms: tuple[nodes.Term | int, ...],
    index: Keys,
    known: Mapping[str, tuple[Keys, int]],
) -> Tensor | None:
    """The rows whose keys much smaller atoms have too; None for all."""
    for p, term in enumerate(terms):
        if not isinstance(term, nodes.Variable) or term.name not in known:
            continue
        smaller, place = known[term.name]
        if SMALLER * smaller.rows <= (index.rows if rows is None else len(rows)):
            some = smaller.column(place)
            if rows is None:
                rows = _with_keys(index, p, some)
                continue
            held = among(index.column(p).index_select(0, rows), some)
            rows = rows.index_select(0, torch.from_numpy(np.flatnonzero(held.numpy())))
    return rows


def _with_keys(index: Keys, position: int, some: Tensor) -> Tensor:
    """The rows of an index with some keys in one column; of the first column, where rows are
    sorted by it, by a search for each of the keys."""
    size = math.prod(index.spans)
    if position or size >= WIDEST or index.packed[1] is not None:
        held = among(index.column(position), some)
        return torch.from_numpy(np.flatnonzero(held.numpy()))
    low, high = index.ends[0]
    below = size // (high - low + 1)
    inside = some[(some >= low) & (some <= high)].unique()
    first = torch.searchsorted(index.packed[0], (inside - low) * below)
    last = torch.searchsorted(index.packed[0], (inside - low + 1) * below)
    counts = last - first
    return expansion(first, counts, int(counts.sum()))[1]


def among(column: Tensor, some: Tensor) -> Tensor:
    """Which keys of a column are among some, by a table where their span allows it."""
    if not len(some) or not len(column):
        return torch.zeros(len(column), dtype=torch.bool)
    low, high = map(int, some.aminmax())
    if high - low >= TABLE * len(column):
        return torch.isin(column, some)
    table = np.zeros(high - low + 3, dtype=bool)  # one more at each end, for keys outside
    table[some.numpy() - (low - 1)] = True
    return torch.from_numpy(np.take(table, column.numpy() - (low - 1), mode="clip"))


def _note(
    known: dict[str, tuple[Keys, int]], terms: tuple[nodes.Term | int, ...], index: Keys
) -> None:
    for p, term in enumerate(terms):
        if isinstance(term, nodes.Variable) and (
            term.name not in known or index.rows < known[term.name][0].rows
        ):
            known[term.name] = index, p
