"""Tasks of a recursion that are alike: the nodes of the first are copied for the others.

A recurrence of a thousand steps has a thousand tasks that differ in the rows that they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from torch.fx import Node

from edgewise.physical.lowering import Lowering
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.rule import RuleStep
from edgewise.physical.symbols import Symbol


@dataclass(frozen=True, eq=False)
class _Written:
    """The nodes of a task, what it read and what it gave."""

    nodes: list[Node]
    inputs: list[Tensor]
    value: Symbol


@dataclass(frozen=True, eq=False)
class Repeats:
    """Computes tasks, those that are alike by copying what the first of them wrote."""

    state: State
    written: dict[Any, _Written] = field(default_factory=dict)

    def __call__(self, step: RuleStep, read: Mapping[str, Column]) -> Column:
        """The value of a rule that reads the relations of the state, and `read` ones instead."""
        state, inputs = self.state, _inputs(step, read)
        if not inputs or state.cache is not None:
            return step(replace(state, relations=state.relations | dict(read)))
        key = (id(step.rule), step.ground.count, *step.ground.rows, *_form(inputs))
        known = self.written.get(key)
        if known is not None:
            return Column(self._copied(known, inputs))
        lowering = state.lowering
        last = lowering.last
        value = step(replace(state, relations=state.relations | dict(read)))
        nodes = lowering.written_after(last)
        if isinstance(value.data, Symbol) and value.data.base.computed in nodes:
            self.written[key] = _Written(nodes, inputs, value.data)
        return value

    def _copied(self, known: _Written, inputs: Sequence[Tensor]) -> Symbol:
        lowering = self.state.lowering
        pairs = zip(known.inputs, inputs, strict=True)
        nodes = {_node(lowering, old): _node(lowering, new) for old, new in pairs}
        copies, base = lowering.copied(known.nodes, nodes), known.value.base
        assert base.computed is not None
        return lowering.reshaped(lowering.symbol(copies[base.computed]), known.value.shape)


def _inputs(step: RuleStep, read: Mapping[str, Column]) -> list[Tensor] | None:
    """The tensors in which a task differs from one that is alike; None where it differs in more:
    numbers, or how rows are aggregated."""
    ground = step.ground
    if ground.groups is not None or not ground.segments.trivial or ground.numbers:
        return None
    columns = [column.data for column in read.values()]
    if not all(isinstance(data, Symbol) and data.computed is not None for data in columns):
        return None
    return [*columns, *(rows for rows in ground.rows.values() if rows is not None)]


def _form(inputs: Sequence[Tensor]) -> list[Any]:
    """What tasks that are alike have in common: shapes, and which inputs are the same tensor."""
    first: dict[int, int] = {}
    return [(x.shape, first.setdefault(id(x), at)) for at, x in enumerate(inputs)]


def _node(lowering: Lowering, tensor: Tensor) -> Node:
    return lowering.node(tensor) if isinstance(tensor, Symbol) else lowering.constant(tensor)
