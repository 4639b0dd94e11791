"""Grounded steps made ready: on their device, with all that keys decide worked out."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.ground.body import Body
from edgewise.ground.constants import Constants
from edgewise.ground.index import Grid, Keys
from edgewise.ground.rules import GroundRule
from edgewise.ground.source import Source
from edgewise.language import nodes
from edgewise.layouts.segments import Segments
from edgewise.plan.nodes import Attention
from edgewise.run.merge import Merge
from edgewise.run.rule import RuleStep

# structures without rules inside
PLAIN = (
    *(Body, Pattern, nodes.Expression, nodes.Rule, nodes.Line, nodes.Function, Attention, Merge),
    *(GroundRule, Segments, Source, Grid, Keys, Constants, type),
)


def to_device(thing: Any, device: torch.device) -> Any:
    """The same structure with its tensors on `device`, those worked out before included."""
    if device.type == "cpu":
        return thing  # keys are joined there
    match thing:
        case Tensor():
            return thing.to(device)
        case dict():
            return {key: to_device(value, device) for key, value in thing.items()}
        case tuple():
            return tuple(to_device(item, device) for item in thing)
        case list():
            return [to_device(item, device) for item in thing]
        case (
            Body() | Pattern() | nodes.Expression() | nodes.Rule() | nodes.Line() | nodes.Function()
        ):
            return thing
    if is_dataclass(thing) and not isinstance(thing, type):
        moved = {name: to_device(value, device) for name, value in vars(thing).items()}
        made = type(thing)(**{f.name: moved.pop(f.name) for f in fields(thing)})
        vars(made).update(moved)
        return made
    return thing


def settle(thing: Any) -> None:
    """Let every rule inside of a structure work out what depends on keys alone."""
    match thing:
        case RuleStep():
            thing.settle()
        case dict():
            settle(tuple(thing.values()))
        case tuple() | list():
            for item in thing:
                settle(item)
        case _ if is_dataclass(thing) and not isinstance(thing, PLAIN):
            for field in fields(thing):
                settle(getattr(thing, field.name))
