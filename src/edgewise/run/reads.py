"""What a model reads off its rules and its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from edgewise.ground.inputs import Given
from edgewise.language import nodes
from edgewise.language.statements import applied_functions, atoms


def dense(given: Mapping[str, Given]) -> dict[str, Tensor]:
    """The inputs that are float tensors: their values may change with every step."""
    return {name: item for name, item in given.items() if isinstance(item, Tensor)}


def called_modules(rules: Iterable[nodes.Rule]) -> list[torch.nn.Module]:
    """The modules that rules apply by `F.call`, each once."""
    found: dict[int, torch.nn.Module] = {}
    for rule in rules:
        for function in (*rule.functions, *applied_functions(rule.body)):
            held = dict(function.arguments).get("module")
            if isinstance(held, nodes.Opaque) and isinstance(held.thing, torch.nn.Module):
                found[id(held.thing)] = held.thing
    return list(found.values())


def arities_of(rules: Iterable[nodes.Rule], facts: Iterable[nodes.Fact]) -> dict[str, int]:
    found: dict[str, int] = {}
    for rule in rules:
        for atom in (rule.head, *atoms(rule.body)):
            if isinstance(atom, nodes.Atom):
                found.setdefault(atom.relation, len(atom.terms))
    for fact in facts:
        found.setdefault(fact.atom.relation, len(fact.atom.terms))
    return found
