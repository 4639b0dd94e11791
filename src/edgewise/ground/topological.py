"""The topological order of ground atoms: levels, each computed after all that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Index, locate, offsets_of
from edgewise.language import nodes
from edgewise.layouts.ragged import pointer, ranges


def head_rows(ground: GroundRule, index: Index) -> Tensor:
    """The row of each ground head of a rule in its relation."""
    heads = ground.heads
    if heads.arity == 0:
        return torch.zeros(heads.rows, dtype=torch.int64)
    return locate(index, heads.keys.unbind(1))


def sources(ground: GroundRule, part: set[str]) -> dict[int, Tensor]:
    """For each recursive atom of the body, the row it reads in each grounding."""
    found = {}
    for at, literal in enumerate(ground.body.literals):
        if isinstance(literal, nodes.Atom) and literal.carries_value and literal.relation in part:
            rows = ground.rows[at]
            found[at] = torch.arange(ground.count) if rows is None else rows
    return found


class Cyclic(Exception):
    """Internal: the ground program of a component has a cycle.

    `levels` are those of atoms by relation, -1 for an atom on a cycle or behind one.
    """

    def __init__(self, levels: dict[str, np.ndarray]) -> None:
        super().__init__("the ground program has a cycle")
        self.levels = levels


def stages(
    grounds: Sequence[GroundRule], indices: Mapping[str, Index]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The stage of every atom, and for each rule the stage of every rule head's computation.

    Atoms that are facts are at stage 0; a computation comes after all it reads, an atom after all
    its computations. Raises `Cyclic` where there is no such order.
    """
    part = set(indices)
    offsets, total = offsets_of(indices)
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
    if len(level) and level.min() < 0:
        raise Cyclic(by_relation)
    return by_relation, [level[unit] for unit in units]


def _longest_paths(starts: np.ndarray, ends: np.ndarray, count: int) -> np.ndarray:
    """The length of the longest path to each node (Kahn, a frontier at a time); -1 for a node on a
    cycle or behind one."""
    targets = ends[np.argsort(starts, kind="stable")]
    ptr = pointer(np.bincount(starts, minlength=count))
    waiting = np.bincount(ends, minlength=count)
    level = np.zeros(count, dtype=np.int64)
    frontier = np.flatnonzero(waiting == 0)
    rounds, seen = 0, 0
    while len(frontier):
        rounds, seen = rounds + 1, seen + len(frontier)
        if rounds > ROUNDS and seen < THIN * rounds:
            level = _one_by_one(frontier, targets, ptr, waiting, level)
            break
        sizes = ptr[frontier + 1] - ptr[frontier]
        reached = targets[ranges(ptr[frontier], sizes)]
        np.maximum.at(level, reached, np.repeat(level[frontier], sizes) + 1)
        np.subtract.at(waiting, reached, 1)
        candidates = np.unique(reached)
        frontier = candidates[waiting[candidates] == 0]
    level[waiting > 0] = -1
    return level


ROUNDS, THIN = 32, 64  # frontiers of fewer nodes than that are walked node by node


def _one_by_one(
    frontier: np.ndarray,
    targets: np.ndarray,
    ptr: np.ndarray,
    waiting: np.ndarray,
    level: np.ndarray,
) -> np.ndarray:
    """The same from a frontier on: calls of numpy for each of thousands of levels take longer."""
    left, found, to, at = waiting.tolist(), level.tolist(), targets.tolist(), ptr.tolist()
    stack = frontier.tolist()
    while stack:
        node = stack.pop()
        after = found[node] + 1
        for other in to[at[node] : at[node + 1]]:
            if found[other] < after:
                found[other] = after
            left[other] -= 1
            if not left[other]:
                stack.append(other)
    waiting[:] = left
    return np.array(found, dtype=np.int64)
