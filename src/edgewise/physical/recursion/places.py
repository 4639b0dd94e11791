"""Where rows lie once a relation is computed stage by stage."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.rules import GroundRule
from edgewise.ground.topological import sources


def places(atom_stage: Mapping[str, np.ndarray]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """For each atom its place within its stage, and its stage."""
    found, stages = {}, {}
    for relation, stage in atom_stage.items():
        order = np.argsort(stage, kind="stable")
        sizes = np.bincount(stage, minlength=int(stage.max()) + 1 if len(stage) else 0)
        starts = np.cumsum(sizes) - sizes
        place = np.empty(len(stage), dtype=np.int64)
        place[order] = np.arange(len(stage)) - starts[stage[order]]
        found[relation] = torch.from_numpy(place)
        stages[relation] = torch.from_numpy(stage.copy())
    return found, stages


def stage_sizes(atom_stage: Mapping[str, np.ndarray]) -> dict[str, dict[int, int]]:
    """Sizes of each stage of each relation."""
    return {
        relation: dict(
            zip(*(x.tolist() for x in np.unique(stage, return_counts=True)), strict=True)
        )
        for relation, stage in atom_stage.items()
    }


def moved(
    ground: GroundRule,
    chosen: Tensor,
    part: set[str],
    place: Mapping[str, Tensor],
    stage_of: Mapping[str, Tensor],
    sizes: Mapping[str, dict[int, int]],
) -> tuple[dict[int, Tensor], dict[str, tuple[int, ...]]]:
    """Rows of recursive atoms as places in the joined stages that the rule reads."""
    read = {at: rows[chosen] for at, rows in sources(ground, part).items()}
    names = {at: ground.body.literals[at].relation for at in read}  # type: ignore[union-attr]
    wanted: dict[str, list[int]] = {}
    for at, rows in read.items():
        wanted.setdefault(names[at], []).extend(stage_of[names[at]][rows].unique().tolist())
    reads = {relation: tuple(sorted(set(numbers))) for relation, numbers in wanted.items()}
    found = {}
    for at, rows in read.items():
        relation = names[at]
        start, base = 0, torch.zeros(max(reads[relation], default=0) + 1, dtype=torch.int64)
        for number in reads[relation]:
            base[number] = start
            start += sizes[relation][number]
        found[at] = base[stage_of[relation][rows]] + place[relation][rows]
    return found, reads


def order_of(stage: np.ndarray, sizes: Mapping[int, int], place: Tensor) -> Tensor:
    """The place of each row among the rows of all stages, one stage after another."""
    base, start = np.zeros(max(sizes, default=0) + 1, dtype=np.int64), 0
    for number in sorted(sizes):
        base[number] = start
        start += sizes[number]
    return torch.from_numpy(base[stage]) + place


def rows_at(stage: np.ndarray) -> dict[int, Tensor]:
    """The rows of each stage, ascending."""
    order = np.argsort(stage, kind="stable")
    numbers, starts = np.unique(stage[order], return_index=True)
    rows = np.split(order, starts[1:])
    return {int(n): torch.from_numpy(r) for n, r in zip(numbers, rows, strict=False)}
