"""Inputs with explicit keys, in any order."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from edgewise.checks.arity import ArityMismatch
from edgewise.checks.facts import DuplicateFact
from edgewise.checks.wording import terms
from edgewise.errors import caller
from edgewise.ground.constants import STRINGS, KeyOutOfRange
from edgewise.ground.index import index_of, pack
from edgewise.ground.inputs import rows
from edgewise.ground.sources.source import Live, Source, value_rows


def rows_source(name: str, given: rows, arity: int) -> Source:
    """Explicit keys, checked for repetition, with their values if they have any."""
    check_arity(name, given, arity)
    source = keyed(name, given.keys.T.cpu(), given.values)
    values = given.values
    if values is None:
        return source
    return replace(source, live=Live([values], lambda: value_rows(values)))


def check_arity(name: str, given: rows, arity: int) -> None:
    if given.keys.shape[0] != arity:
        raise ArityMismatch(
            f"`{name}` has {terms(arity)}, but the keys are {tuple(given.keys.shape)}",
            caller(),
            f"give an integer tensor of shape ({arity}, rows)",
        )
    _check_range(name, given.keys)


def _check_range(name: str, keys: Tensor) -> None:
    wrong = keys[(keys < 0) | (keys >= STRINGS)]
    if wrong.numel():
        raise KeyOutOfRange(
            f"`{name}` has the key {int(wrong[0])}",
            caller(),
            "give keys from 0 to 2^40; drop padding before, as in `keys[:, (keys >= 0).all(0)]`",
        )


def keyed(name: str, keys: Tensor, values: Tensor | None) -> Source:
    """Keys (rows, arity) in any order, with values (rows, value...) or none."""
    order = None
    if not keys.shape[1] and len(keys) > 1:
        raise DuplicateFact(
            f"`{name}` has no terms and is given {len(keys)} values",
            caller(),
            "give one; combine the values before",
        )
    if keys.shape[1]:
        (codes,) = pack(list(keys.unbind(1)))
        ordered, order = codes.sort(stable=True)
        repeated = (ordered[1:] == ordered[:-1]).nonzero()
        if len(repeated):
            key = keys[order[repeated[0, 0]]].tolist()
            raise DuplicateFact(
                f"`{name}` is given the key {tuple(key)} twice",
                caller(),
                "give each key once; combine the values before",
            )
        keys = keys[order]
        if bool((order == torch.arange(len(order))).all()):
            order = None
    stored = torch.ones(len(keys)) if values is None else value_rows(values)
    return Source(index_of(keys), order, stored, shape=tuple(stored.shape[1:]))
