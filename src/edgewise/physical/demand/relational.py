"""Demand for attention along edges with vectors: the wanted queries, and what their edges read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Keys
from edgewise.kernels.edges import edge_index
from edgewise.layouts.ragged import ranges
from edgewise.physical.attention.relational import HeadRows, RelationalStep, head_rows
from edgewise.physical.demand.attention import AttendedIndex
from edgewise.physical.demand.need import Chooser, GroundIndex, Need, keys_at


@dataclass(frozen=True, eq=False)
class RelationalIndex(AttendedIndex[RelationalStep]):
    """The edges of each query."""

    def note_reads(self, step: RelationalStep, need: Need, hop: int) -> None:
        """The rows that the expressions read are needed."""
        for rule in step.rules():
            need.add_reads(rule.ground, hop)

    def taken(
        self, rows: Tensor, choose: Chooser | None, hop: int
    ) -> tuple[RelationalStep, Tensor]:
        """The attention of the queries behind some rows, and all rows that those queries have."""
        step, csr, node = self.step, self.step.which.rows, self.step.node
        place = rows if step.places is None else step.places[rows]
        query = (place % csr.segments if step.heads_first else place // step.heads).unique()
        start = csr.ptr.long()[query].numpy()
        count = csr.ptr.diff().long()[query].numpy()
        if choose is None:
            chosen = ranges(start, count)
        else:
            chosen, count = choose(start, count, hop)
        edges = torch.from_numpy(np.asarray(chosen))
        i = torch.arange(len(query)).repeat_interleave(torch.from_numpy(np.asarray(count)))
        keys, j = csr.index.long()[edges].unique(return_inverse=True)
        of = dict.fromkeys(node.of_queries, query) | dict.fromkeys(node.of_keys, keys)
        of |= dict.fromkeys(node.of_edges, edges)
        own, order = self._own(query)
        return replace(
            step,
            index=Keys(keys_at(step.index, own)),
            which=edge_index(i, j, len(query), len(keys)),
            sides={x: _some(s, of[x]) if x in of else s for x, s in step.sides.items()},
            places=None if step.places is None else order,
        ), own

    def _own(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of all heads of queries, and their order among (query, head)."""
        step, heads = self.step, torch.arange(self.step.heads)
        if step.heads_first:
            rows = query[:, None] + heads * step.which.rows.segments
        else:
            rows = query[:, None] * step.heads + heads
        if step.places is not None:
            rows = torch.empty_like(step.places).index_copy_(
                0, step.places, torch.arange(len(step.places))
            )[rows]
        return rows.flatten().sort()


def _some(side: HeadRows, at: Tensor) -> HeadRows:
    """At some queries, keys or edges."""
    some, place = side.rows[at].unique(return_inverse=True)
    ground = GroundIndex(side.step.ground).taken(some)
    return head_rows(replace(side.step, ground=ground), place)


def moved(step: RelationalStep, change: Callable[[GroundRule], GroundRule]) -> RelationalStep:
    """The step with other ground rules for its expressions."""

    def side(one: HeadRows) -> HeadRows:
        return replace(one, step=replace(one.step, ground=change(one.step.ground)))

    sides = {item: side(one) for item, one in step.sides.items()}
    return replace(step, sides=sides, weights={w: side(x) for w, x in step.weights.items()})
