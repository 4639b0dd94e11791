"""The shapes of a program's weights, without making any."""

from __future__ import annotations

from edgewise.language.program import Program
from edgewise.language.statements import name_weights, weights
from edgewise.language.terms import variables
from edgewise.zoo.pretrained.entries import Shape


def shapes_of(program: Program) -> dict[str, Shape]:
    """Weight name → shape, of those that a checkpoint holds.

    >>> from edgewise.language import R, V, W
    >>> shapes_of(Program([R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, 4]]], domains={V.H: 3}))
    {'q': (3, 2, 4)}
    """
    domains = dict(program.domains)
    found: dict[str, Shape] = {}
    for statement in name_weights(program):
        for weight in weights(statement):
            if weight.shape is not None and weight.name is not None:
                keys = (domains[v.name] for v in variables(weight.keys))
                sizes = tuple(k if isinstance(k, int) else len(k) for k in keys)
                found.setdefault(weight.name, (*sizes, *weight.shape))
    return found
