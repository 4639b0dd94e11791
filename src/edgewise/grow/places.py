"""What rules read of the place itself: numbers made of it and weights that belong to it.

A step is laid out for the new rows alone, as if they were the first. What depends on the place is
worked out for all places there is room for, and read from where the rows stand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.ground.index import Grid, Index
from edgewise.ground.rules import Grounder, GroundRule
from edgewise.grow.axes import Axes, refusal
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.physical.executable import RelationStep
from edgewise.physical.step import Step

Tables = dict[GroundRule, dict[int, Tensor]]  # of a literal: (before, capacity, after)


def tables_of(step: Step, axes: Axes, capacity: int, limit: int) -> Tables:
    """For every rule that reads places, what its literals read at each of them."""
    executable = step.executable
    relations = {n: _longer(n, i, axes, capacity) for n, i in executable.relations.items()}
    domains = dict(step.prepared.plan.domains)
    grounder = Grounder(executable.constants, domains, relations, limit)
    found: Tables = {}
    for part in executable.steps:
        assert isinstance(part, RelationStep)  # others cannot grow
        for rule in part.rules():
            growing = axes.names(rule.rule.body, rule.rule.place)
            placed = list(_placed(rule.ground, growing))
            if placed:
                (name,) = growing
                found[rule.ground] = _tables(rule.ground, placed, name, grounder, capacity)
    return found


def _longer(name: str, index: Index, axes: Axes, capacity: int) -> Index:
    at = axes.place.get(name)
    if at is None:
        return index
    if not isinstance(index, Grid):
        raise refusal(f"`{name}` is not on dense axes", None)
    return Grid((*index.sizes[:at], capacity, *index.sizes[at + 1 :]))


def _placed(ground: GroundRule, growing: set[str]) -> Iterator[int]:
    """The literals whose numbers or weights depend on the place."""
    for at, literal in enumerate(ground.body.literals):
        match literal:
            case nodes.SpecialAtom(terms=terms) if literal.carries_value:
                read = terms
            case nodes.Weight(keys=keys):
                read = keys
            case _:
                continue
        if any(v.name in growing for v in variables(read)):
            yield at


def _tables(
    ground: GroundRule, placed: list[int], name: str, grounder: Grounder, capacity: int
) -> dict[int, Tensor]:
    whole = grounder.ground(ground.body)
    head = ground.rule.head
    names = [v.name for v in variables(head.terms)]
    assert isinstance(ground.heads, Grid)
    rows = ground.heads.sizes[names.index(name)]
    if whole.count * rows != ground.count * capacity:
        raise refusal(f"`{head.relation}` does not hold at every place", ground.rule.place)
    before = math.prod(ground.heads.sizes[: names.index(name)])
    found = {}
    for at in placed:
        column = whole.numbers.get(at, whole.rows.get(at))
        if column is None:  # the grounding's own number
            column = torch.arange(whole.count)
        found[at] = column.reshape(before, capacity, -1)
    return found
