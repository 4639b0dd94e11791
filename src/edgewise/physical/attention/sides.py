"""What an attention reads: expressions along its axes and of its edges, and tables of its score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.physical.lowering_state import State
from edgewise.physical.result_shapes import broadcast
from edgewise.physical.rule import RuleStep
from edgewise.scores import Score
from edgewise.scores.nodes import Call, Entry, Node, Number, walk
from edgewise.scores.primitives import call

Axes = dict[str, int]
Fill = Callable[[State], Tensor]


@dataclass(frozen=True, eq=False)
class FilledScore:
    """`fills[n]` is table n of the tree: (batch, heads..., entries)."""

    tree: Node
    fills: tuple[Fill, ...] = ()

    def __call__(self, state: State) -> Score:
        return Score(self.tree, tuple(_alone(fill(state)) for fill in self.fills))


def by_head(tree: Node) -> list[int]:
    """The numbers of what a tree reads once for each head."""
    found = {x.table: None for x in walk(tree) if isinstance(x, Entry) and x.index == Number(0)}
    return list(found)


def by_distance(tree: Node) -> list[int]:
    """The numbers of what a tree reads for each distance."""
    found = {x.table: None for x in walk(tree) if isinstance(x, Entry) and x.index != Number(0)}
    return list(found)


def filled(tree: Node, fills: dict[int, Fill], shift: int) -> FilledScore:
    """The first entry of what is read for each distance is that for I − J = -shift."""
    tables = {number: n for n, number in enumerate(fills)}
    return FilledScore(_placed(tree, tables, shift), tuple(fills.values()))


def _placed(node: Node, tables: dict[int, int], shift: int) -> Node:
    match node:
        case Call(function, operands):
            return Call(function, tuple(_placed(x, tables, shift) for x in operands))
        case Entry(table, Number(0) as index):
            return Entry(tables[table], index)
        case Entry(table, distance):
            return Entry(tables[table], call("add", distance, Number(shift)))
    return node


def _alone(values: Tensor) -> Tensor:
    """Without the axis of the batch where it has one element."""
    return values if values.shape[0] > 1 else values.squeeze(0)


@dataclass(frozen=True, eq=False)
class Side:
    """An expression over some axes: a value for each place of a grid.

    In a ragged batch `samples` says how many grids there are, one for each sample and all as large
    as the largest, and `rows` which row stands at each place; the one after the last is padding.
    """

    step: RuleStep
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    samples: int | None = None
    rows: Tensor | None = None

    def __call__(self, state: State, order: Sequence[str], axes: Axes) -> Tensor:
        """(batch, *axes in `order`, value...), axes it does not hold broadcast."""
        value = self.step(state)
        if self.rows is not None:
            rows = value.data
            if bool((self.rows >= rows.shape[1]).any()):
                rows = torch.cat([rows, rows.new_zeros(1, 1, *value.shape)], 1)
            rows = rows.index_select(1, self.rows)
            data = rows.reshape(self.samples or rows.shape[0], *self.sizes, *value.shape)
        else:
            batch = self.samples or value.data.shape[0]
            data = value.data.reshape(batch, *self.sizes, *value.shape)
        held = [n for n in order if n in self.names]
        places = [1 + self.names.index(n) for n in held]
        rest = range(1 + len(self.names), data.ndim)
        data = data.permute(0, *places, *rest)
        shape = [axes[n] if n in self.names else 1 for n in order]
        return data.reshape(data.shape[0], *shape, *value.shape)


@dataclass(frozen=True, eq=False)
class EdgeSide:
    """An expression with a value for each edge, `rows` of it, perhaps for each of some heads."""

    step: RuleStep
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    rows: Tensor

    def __call__(self, state: State, order: Sequence[str]) -> Tensor:
        """(batch, *axes in `order`, edges), axes it does not hold broadcast."""
        data = self.step(state).data.index_select(1, self.rows)
        sizes = dict(zip(self.names, self.sizes, strict=True))
        return data.flatten(1).unflatten(1, (*(sizes.get(n, 1) for n in order), -1))


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Parts with features side by side, axes that one of them lacks broadcast."""
    if len(parts) == 1:
        return parts[0]
    shape = broadcast(*(part.shape[:-1] for part in parts))
    return torch.cat([part.expand(*shape, part.shape[-1]) for part in parts], -1)
