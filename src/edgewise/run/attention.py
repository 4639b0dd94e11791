"""A fused attention node on dense axes: queries, keys and values straight into a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.ground.index import Index
from edgewise.ground.rules import Grounder
from edgewise.language import nodes
from edgewise.plan.nodes import Attention
from edgewise.run.column import Column
from edgewise.run.rule import State


@dataclass(frozen=True, eq=False)
class AttentionStep:
    """Runs one attention node."""

    node: Attention
    index: Index

    def __call__(self, state: State) -> Column:
        raise NotImplementedError


def attention_step(
    node: Attention, grounder: Grounder, line: nodes.Line | None
) -> AttentionStep | str:
    return "not dense"
