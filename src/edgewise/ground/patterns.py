"""Patterns on data: how long their axes are, in each sample, and which pairs they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.ground.body import SAMPLE, Body
from edgewise.ground.constants import STRINGS
from edgewise.ground.index import Grid, Index, index_of
from edgewise.language import nodes


@dataclass(frozen=True, eq=False)
class PatternAxes:
    """The lengths of a pattern's two axes: one pair (samples is None), or one for each sample.

    `held` says whether atoms hold both terms; then no pair lies outside.
    """

    lengths: Tensor  # (2, 1) or (2, samples)
    in_samples: bool
    held: bool

    def pairs(self) -> Iterator[tuple[int, int, Tensor]]:
        """Every different pair of lengths, with the samples that have it."""
        different, which = torch.unique(self.lengths, dim=1, return_inverse=True)
        for at, (n, m) in enumerate(different.T.tolist()):
            yield n, m, (which == at).nonzero()[:, 0]


def axes(
    body: Body, literal: nodes.PatternAtom, index: Callable[[nodes.Atom], Index], samples: int
) -> PatternAxes:
    """For each term the shortest axis among the positive atoms that hold it."""
    in_samples = literal.terms[0] == SAMPLE
    positive = list(body.positive.values())
    found, held = [], True
    for term in literal.terms[-2:]:
        ends = [
            _lengths(index(atom), p, samples if atom.terms[0] == SAMPLE else None)
            for atom in positive
            for p, t in enumerate(atom.terms)
            if t == term and isinstance(t, nodes.Variable)
        ]
        held &= bool(ends)
        shortest = torch.zeros(1, dtype=torch.int64) if not ends else ends[0]
        for end in ends[1:]:
            shortest = torch.minimum(shortest, end)
        found.append(shortest.expand(samples if in_samples else 1))
    return PatternAxes(torch.stack(found), in_samples, held)


def _lengths(index: Index, position: int, samples: int | None) -> Tensor:
    """One more than the largest integer of a column: in all, or in each sample (column 0)."""
    if samples is None:
        return torch.tensor([index.length(position)])
    if isinstance(index, Grid):
        inside = torch.arange(samples) < index.sizes[0]
        return torch.where(inside, index.sizes[position], 0)
    column = index.column(position)
    known = column < STRINGS
    start = torch.zeros(samples, dtype=torch.int64)
    return start.scatter_reduce(0, index.column(0)[known], column[known] + 1, "amax")


def count(pattern: Any, found: PatternAxes) -> int:
    """How many pairs there are, over all samples."""
    return sum(pattern.count(n, m) * len(samples) for n, m, samples in found.pairs() if n and m)


def edges(pattern: Any, found: PatternAxes) -> Index:
    """The pairs as keys (i, j), or (sample, i, j)."""
    tables = [torch.zeros(0, 3, dtype=torch.int64)]
    for n, m, samples in found.pairs():
        if n and m:
            pairs = pattern.edges(n, m).T
            first = samples.repeat_interleave(len(pairs)).unsqueeze(1)
            tables.append(torch.cat([first, pairs.repeat(len(samples), 1)], 1))
    table = torch.cat(tables)
    if not found.in_samples:
        return index_of(table[:, 1:].contiguous())
    return index_of(table[table[:, 0].argsort(stable=True)])


def contains(pattern: Any, found: PatternAxes, columns: list[Tensor]) -> Tensor:
    """Whether each pair is in the pattern; a key outside of its axis makes the axis longer."""
    *sample, i, j = columns
    inside = (i >= 0) & (j >= 0) & (i < STRINGS) & (j < STRINGS)
    own = found.lengths[:, sample[0]] if sample else found.lengths.expand(2, len(i))
    lengths = torch.where(inside, torch.maximum(own, torch.stack([i, j]) + 1), 0)
    different, which = torch.unique(lengths, dim=1, return_inverse=True)
    for at, (n, m) in enumerate(different.T.tolist()):
        here = (which == at).nonzero()[:, 0]
        if n and m:
            inside[here] &= pattern.contains(i[here], j[here], n, m)
    return inside
