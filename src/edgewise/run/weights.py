"""Weights in a module: a tree of modules that follows the parts of their names."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Path = tuple[str, ...]


def register(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Path]:
    """Put weights into a module by the parts of their names; give the path of each."""
    return {name: _register(module, name, tensor) for name, tensor in tensors.items()}


def _register(module: torch.nn.Module, name: str, tensor: Tensor) -> Path:
    *scopes, leaf = name.split(".")
    path = []
    for part in scopes:
        while hasattr(module, part) and not isinstance(module._modules.get(part), torch.nn.Module):
            part += "_"
        if part not in module._modules:
            module.add_module(part, torch.nn.Module())
        module = getattr(module, part)
        path.append(part)
    while hasattr(module, leaf) or not leaf:
        leaf += "_"
    if isinstance(tensor, torch.nn.Parameter):
        module.register_parameter(leaf, tensor)
    else:
        module.register_buffer(leaf, tensor)
    return (*path, leaf)


def owner(module: torch.nn.Module, path: Path) -> torch.nn.Module:
    """The module that holds the weight at a path."""
    for part in path[:-1]:
        module = getattr(module, part)
    return module


def at(module: torch.nn.Module, path: Path) -> Tensor:
    """The weight at a path."""
    found = getattr(owner(module, path), path[-1])
    assert isinstance(found, Tensor)
    return found
