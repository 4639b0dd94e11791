"""Grounded steps on another device: every tensor inside, nothing else."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.language import nodes
from edgewise.reference.join import Body


def to_device(thing: Any, device: torch.device) -> Any:
    """The same structure with its tensors on `device`."""
    match thing:
        case Tensor():
            return thing.to(device)
        case dict():
            return {key: to_device(value, device) for key, value in thing.items()}
        case tuple():
            return tuple(to_device(item, device) for item in thing)
        case list():
            return [to_device(item, device) for item in thing]
        case Body() | nodes.Expression() | nodes.Rule() | nodes.Line() | nodes.Function():
            return thing
    if is_dataclass(thing) and not isinstance(thing, type):
        values = {f.name: to_device(getattr(thing, f.name), device) for f in fields(thing)}
        return type(thing)(**values)
    return thing
