"""The tree of a score with the tensors of one step filled in for what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from edgewise.physical.state import State
from edgewise.scores import Score
from edgewise.scores.nodes import Call, Entry, Node, Number, walk
from edgewise.scores.primitives import call

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
