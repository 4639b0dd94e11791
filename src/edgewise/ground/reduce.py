"""Filters before a join: the rows of an atom that its own conditions and small atoms leave over.

Of `e(X, Y), e(Y, Z), label(X, 3), @lt(Z, 10)` the first edges are those from nodes of label 3, the
second those to nodes below 10: a semi-join of each large atom with each that is much smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.ground.body import Body
from edgewise.ground.index import Index, Keys, distinct_rows, locate
from edgewise.ground.join import Bindings
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
                bindings = _own(body, at, terms, index, extend)
                bindings = _semi_joined(bindings, known)
                if bindings.count < index.rows // 2:
                    found.rows[at] = bindings.rows[at]
                    found.indices[at] = index = Keys(index.keys[bindings.rows[at]])
            _note(known, terms, index)
    return found


def _own(
    body: Body, at: int, terms: tuple[nodes.Term | int, ...], index: Keys, extend: Extend
) -> Bindings:
    """The rows that satisfy constants, repeated variables and comparisons of one atom."""
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
    bindings = Bindings(index.rows, columns, {at: torch.arange(index.rows)})
    if equal:
        bindings = bindings.where(torch.stack(equal).all(0))
    for other, literal in enumerate(body.literals):
        names = set(body.names[other])
        comparison = isinstance(literal, nodes.SpecialAtom) and literal.function is None
        if comparison and names and names <= columns.keys():
            bindings = extend(other, bindings)
    return bindings


def _semi_joined(bindings: Bindings, known: Mapping[str, tuple[Keys, int]]) -> Bindings:
    for name, (index, p) in known.items():
        if name in bindings.columns and SMALLER * index.rows <= bindings.count:
            keys = Keys(distinct_rows(index.column(p).unsqueeze(1)))
            bindings = bindings.where(locate(keys, [bindings.columns[name]]) >= 0)
    return bindings


def _note(
    known: dict[str, tuple[Keys, int]], terms: tuple[nodes.Term | int, ...], index: Keys
) -> None:
    for p, term in enumerate(terms):
        if isinstance(term, nodes.Variable) and (
            term.name not in known or index.rows < known[term.name][0].rows
        ):
            known[term.name] = index, p
