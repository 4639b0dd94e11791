"""How many bytes a rule's values take, before a step allocates them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from edgewise.functions import Law
from edgewise.graphs.checks import physical_memory
from edgewise.ground.join import too_many_bytes
from edgewise.ground.source import Source
from edgewise.inputs.prepare import batched_relations
from edgewise.language.functions import definition
from edgewise.physical.rule import RuleStep
from edgewise.plan.nodes import Plan


@dataclass(frozen=True)
class Values:
    """What there is for values: bytes, the size of a number, and how often `batched` relations
    have each row."""

    bytes: int
    itemsize: int
    batch: int
    batched: frozenset[str]

    def check(self, step: RuleStep, shape: tuple[int, ...] | None) -> None:
        """Refuse a rule whose values, each of `shape`, are more than there is memory for."""
        if shape is None:
            return
        rows = _written(step) * (self.batch if step.rule.head.relation in self.batched else 1)
        needed = rows * math.prod(shape) * self.itemsize
        if needed > self.bytes:
            raise too_many_bytes(step.rule, rows, f"values of {math.prod(shape):,}", needed)


def values_of(
    plan: Plan, sources: Mapping[str, Source], dtype: torch.dtype, device: torch.device
) -> Values:
    """The memory of a device, for the values of a plan."""
    own = {name for name, source in sources.items() if source.batched}
    batch = max((sources[name].batch for name in own), default=1)
    if device.type == "cuda":
        room = int(torch.cuda.get_device_properties(device).total_memory)
    else:
        room = physical_memory()
    return Values(room, dtype.itemsize, batch, frozenset(batched_relations(plan.rules, own)))


def _written(step: RuleStep) -> int:
    """The rows that are surely written out: of heads, and of groundings that are then reduced."""
    elementwise = Law.ELEMENTWISE in definition(step.aggregation)
    alike = elementwise and step.rule.head.weight is None
    if not alike or step.sums_rows:
        return step.ground.heads.rows
    return max(step.ground.count, step.ground.heads.rows)
