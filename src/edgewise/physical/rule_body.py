"""Questions about the body of a ground rule that its step asks."""

from __future__ import annotations

from edgewise.ground.rules import GroundRule
from edgewise.language import functions, nodes
from edgewise.language.statements import applied_functions, atoms, combination, weights


def place(ground: GroundRule, literal: nodes.Expression) -> int:
    """The place of a literal of the body in the grounding, by identity."""
    for at, other in enumerate(ground.body.literals):
        if other is literal:
            return at
    raise TypeError(f"not a literal of this rule: {literal!r}")


def single_atom(item: nodes.Expression) -> nodes.Atom | None:
    """The atom of an expression of one atom and plain weights: computed once per row."""
    found = list(atoms(item))
    if len(found) != 1 or not isinstance(found[0], nodes.Atom):
        return None
    if any(weight.keys for weight in weights(item)):
        return None
    if any(function.name == "lookup" for function in applied_functions((item,))):
        return None  # reads integers, in every grounding
    return found[0]


def takes_rows(rule: nodes.Rule) -> bool:
    """Whether a grounding is a row of one atom, weights and functions of it alone included."""
    values = [item for item in rule.body if item.carries_value]
    plain = all(functions.kind(f) != functions.TRANSFORMATION for f in rule.functions)
    return plain and len(values) == 1


def scales_only(rule: nodes.Rule) -> bool:
    """Whether a grounding is at most a scalar times a row."""
    one = sum(item.carries_value for item in rule.body) == 1
    plain = all(functions.kind(f) != functions.TRANSFORMATION for f in rule.functions)
    return plain and (one or combination(rule.functions).name == "product")
