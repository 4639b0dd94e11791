"""Whether pairs of a pattern are the same for every number of tokens."""

from dataclasses import fields

from edgewise.graphs.algebra import (
    Derived,
    complement,
    difference,
    intersection,
    restricted,
    shifted,
    transpose,
    union,
)
from edgewise.graphs.pattern import Pattern

ALGEBRA = (union, intersection, difference, complement, transpose, shifted, restricted)


def length_dependent(pattern: Pattern) -> Pattern | None:
    """A part of a pattern in which membership of a pair depends on the lengths; None if none does.

    >>> from edgewise.graphs import causal, window
    >>> length_dependent(window(2) & causal()) is None
    True
    """
    if pattern.ignores_lengths:
        return None
    if isinstance(pattern, Derived):
        return length_dependent(pattern.definition())
    if not isinstance(pattern, ALGEBRA):
        return pattern
    for operand in fields(pattern):
        value = getattr(pattern, operand.name)
        for part in value if isinstance(value, tuple) else (value,):
            found = length_dependent(part) if isinstance(part, Pattern) else None
            if found is not None:
                return found
    return None
