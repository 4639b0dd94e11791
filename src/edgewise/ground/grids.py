"""A rule that reads full grids: its groundings are a grid as well, written down without a join."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.ground.index import Grid, Index
from edgewise.ground.joins.body import Body, terms_of
from edgewise.language import nodes
from edgewise.layouts.ragged import Segments

Read = nodes.Atom | nodes.Weight


@dataclass(frozen=True, eq=False)
class GridRule:
    """The groundings of a rule, all tuples of its variables in key order: what it derives, and the
    rows that each literal reads, None where they are the groundings' own numbers."""

    count: int
    heads: Grid
    segments: Segments
    rows: dict[int, Tensor | None]


def on_grid(
    body: Body, index: Callable[[Read], Index], check: Callable[[int], None]
) -> GridRule | None:
    """What a rule is on grids, after a check of how many groundings it has; None if it takes a
    join: a condition, a constant, a variable over different lengths, none in the rule head."""
    found = _lengths(body, index)
    head = _names(body.rule.head.terms)
    if found is None or not head or found.keys() != set(body.visible) or 0 in found.values():
        return None
    sizes = {name: found[name] for name in body.visible}  # in the order of keys
    count, heads = math.prod(sizes.values()), Grid(tuple(sizes[name] for name in head))
    check(count)
    ids, inner = torch.arange(heads.rows), count // heads.rows
    ids = ids.repeat_interleave(inner) if inner > 1 else ids
    read = {at: _names(terms_of(literal)) or () for at, literal in enumerate(body.literals)}
    rows = {names: _rows(names, sizes) for names in read.values()}
    parts = Segments(heads.rows, ids, inner), {at: rows[names] for at, names in read.items()}
    return GridRule(count, heads, *parts)


def _lengths(body: Body, index: Callable[[Read], Index]) -> dict[str, int] | None:
    """Variable → the length of the axes that it runs along, in every literal the same."""
    found: dict[str, int] = {}
    for literal in body.literals:
        if not isinstance(literal, Read) or not literal.carries_value:
            return None
        names, grid = _names(terms_of(literal)), index(literal)
        if names is None or not isinstance(grid, Grid):
            return None
        for name, size in zip(names, grid.sizes, strict=True):
            if found.setdefault(name, size) != size:
                return None
    return found


def _names(terms: Sequence[nodes.Term]) -> tuple[str, ...] | None:
    """Of terms that are variables, each once."""
    names = tuple([term.name for term in terms if isinstance(term, nodes.Variable)])
    return names if len(set(names)) == len(terms) else None


def _rows(read: Sequence[str], sizes: Mapping[str, int]) -> Tensor | None:
    """The row of a grid over the variables `read` for each place of the grid over all; None if
    that is the same.

    >>> _rows(["y"], {"x": 2, "y": 3})
    tensor([0, 1, 2, 0, 1, 2])
    """
    if [name for name in read if sizes[name] > 1] == [n for n, size in sizes.items() if size > 1]:
        return None
    strides = {name: math.prod(sizes[n] for n in read[p + 1 :]) for p, name in enumerate(read)}
    rows = torch.zeros((), dtype=torch.int64)
    for name, size in sizes.items():
        rows = rows.unsqueeze(-1)
        if name in strides:
            rows = rows + torch.arange(size) * strides[name]
    return rows.expand(*sizes.values()).reshape(-1)
