"""The topological order of ground atoms: levels, each computed after all that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.index import Index, locate
from edgewise.ground.rules import GroundRule
from edgewise.language import nodes
from edgewise.layouts.segments import segments


def head_rows(ground: GroundRule, index: Index) -> Tensor:
    """The row of each ground head of a rule in its relation."""
    heads = ground.heads
    if heads.arity == 0:
        return torch.zeros(heads.rows, dtype=torch.int64)
    return locate(index, [heads.column(p) for p in range(heads.arity)])


def sources(ground: GroundRule, part: set[str]) -> dict[int, Tensor]:
    """For each recursive atom of the body, the row it reads in each grounding."""
    found = {}
    for at, literal in enumerate(ground.body.literals):
        if isinstance(literal, nodes.Atom) and literal.carries_value and literal.relation in part:
            rows = ground.rows[at]
            found[at] = torch.arange(ground.count) if rows is None else rows
    return found


def restrict(ground: GroundRule, chosen: Tensor, moved: Mapping[int, Tensor]) -> GroundRule:
    """The ground rule on some of its groundings; `moved` are new rows for recursive atoms.

    `chosen` are groundings in order; rule heads that keep none are dropped.
    """
    ids = ground.segments.ids[chosen]
    heads, compact = torch.unique(ids, return_inverse=True)
    rows: dict[int, Tensor | None] = {}
    for at, old in ground.rows.items():
        rows[at] = moved[at] if at in moved else (chosen if old is None else old[chosen])
    groups = None
    if ground.groups is not None:
        labels = torch.unique(ground.groups.ids[heads], return_inverse=True)[1]
        groups = segments(labels, int(labels.max()) + 1 if len(labels) else 0)
    return replace(
        ground,
        count=len(chosen),
        rows=rows,
        numbers={at: numbers[chosen] for at, numbers in ground.numbers.items()},
        segments=segments(compact, len(heads)),
        groups=groups,
        sizes={},
    )


class Cyclic(Exception):
    """Internal: the ground program of a component has a cycle."""


def stages(
    grounds: Sequence[GroundRule], indices: Mapping[str, Index], facts: Mapping[str, Tensor]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The stage of every atom, and for each rule the stage of every rule head's computation.

    Atoms that are facts are at stage 0; a computation comes after all it reads, an atom after all
    its computations. Raises `Cyclic` where there is no such order.
    """
    part = set(indices)
    offsets, total = {}, 0
    for relation, index in indices.items():
        offsets[relation] = total
        total += index.rows
    atoms = total
    units = []
    for ground in grounds:
        labels = ground.groups.ids if ground.groups is not None else torch.arange(ground.heads.rows)
        units.append(labels.numpy() + total)
        total += int(labels.max()) + 1 if len(labels) else 0
    starts, ends = [], []
    for ground, unit in zip(grounds, units, strict=True):
        relation = ground.rule.head.relation
        rows = head_rows(ground, indices[relation]).numpy() + offsets[relation]
        starts.append(unit)
        ends.append(rows)
        of_grounding = unit[ground.segments.ids.numpy()]
        for at, read in sources(ground, part).items():
            literal = ground.body.literals[at]
            assert isinstance(literal, nodes.Atom)
            starts.append(read.numpy() + offsets[literal.relation])
            ends.append(of_grounding)
    level = _longest_paths(np.concatenate(starts), np.concatenate(ends), total)
    by_relation = {
        relation: level[offsets[relation] : offsets[relation] + index.rows]
        for relation, index in indices.items()
    }
    assert atoms <= total
    return by_relation, [level[unit] for unit in units]


def _longest_paths(starts: np.ndarray, ends: np.ndarray, count: int) -> np.ndarray:
    """The length of the longest path to each node (Kahn, a frontier at a time)."""
    order = np.argsort(starts, kind="stable")
    targets = ends[order]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(starts, minlength=count))])
    waiting = np.bincount(ends, minlength=count)
    level = np.zeros(count, dtype=np.int64)
    frontier = np.flatnonzero(waiting == 0)
    seen = 0
    while len(frontier):
        seen += len(frontier)
        sizes = ptr[frontier + 1] - ptr[frontier]
        spread = np.repeat(ptr[frontier] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        reached = targets[spread + np.arange(sizes.sum())]
        np.maximum.at(level, reached, np.repeat(level[frontier], sizes) + 1)
        np.subtract.at(waiting, reached, 1)
        candidates = np.unique(reached)
        frontier = candidates[waiting[candidates] == 0]
    if seen < count:
        raise Cyclic
    return level
