"""Residue classes of a pattern, found symbolically: no row is computed.

If i ≡ j (mod s) for all pairs, tokens attend only within their residue class, and the classes are s
short independent sequences, most often with the same graph.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import gcd, lcm
from operator import and_, or_

import numpy as np

from edgewise.graphs.algebra import Derived, difference, intersection, union
from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.causal import causal
from edgewise.graphs.patterns.dilated import dilated
from edgewise.graphs.patterns.documents import documents
from edgewise.graphs.patterns.full import full
from edgewise.graphs.patterns.strided import strided
from edgewise.graphs.patterns.window import window


@dataclass(frozen=True)
class ResidueGroup:
    """Classes first ≤ r < last, of n queries and m keys each, with the same graph."""

    first: int
    last: int
    n: int
    m: int
    graph: Pattern

    @property
    def classes(self) -> int:
        return self.last - self.first


def symbolic_step(pattern: Pattern) -> int:
    """A step s such that all pairs have i ≡ j (mod s); 1 if none is known.

    >>> symbolic_step(strided(4) & dilated(5, 6)), symbolic_step(strided(4) | dilated(5, 6))
    (12, 2)
    """
    match pattern:
        case strided() | dilated():
            return pattern.step
        case intersection():
            return lcm(*map(symbolic_step, pattern.members))
        case union():
            return gcd(*map(symbolic_step, pattern.members))
        case difference():
            return symbolic_step(pattern.left)
        case Derived():
            return symbolic_step(pattern.definition())
    return 1


def class_of(pattern: Pattern, step: int) -> Pattern | None:
    """{(t, u) : (r + step·t, r + step·u) ∈ pattern}, if it is the same for all r.

    >>> class_of(strided(4) & causal(), 4), class_of(dilated(5, 6), 3), class_of(dilated(5, 2), 4)
    (causal(), dilated(5, 2), window(2))
    """
    match pattern:
        case full() | causal():
            return pattern
        case window():
            return window(pattern.radius // step)
        case strided():
            apart = pattern.step // gcd(pattern.step, step)
            return full() if apart == 1 else strided(apart)
        case dilated():
            reach = pattern.radius * pattern.step // step
            apart = pattern.step // gcd(pattern.step, step)
            return window(reach) if apart == 1 else dilated(reach // apart, apart)
        case documents():
            lengths = np.diff(pattern.ends, prepend=0)
            return documents(lengths // step) if not (lengths % step).any() else None
        case difference():
            left, right = class_of(pattern.left, step), class_of(pattern.right, step)
            return None if left is None or right is None else left - right
        case Derived():
            return class_of(pattern.definition(), step)
        case intersection() | union():
            found = [class_of(member, step) for member in pattern.members]
            members = [member for member in found if member is not None]
            if len(members) < len(found):
                return None
            if isinstance(pattern, union):
                return reduce(or_, members)
            return reduce(and_, [one for one in members if one != full()] or members)
    return None


@cached
def residue_groups(pattern: Pattern, n: int, m: int) -> tuple[ResidueGroup, ...] | None:
    """Runs of classes of equal size; None if they cannot be found symbolically."""
    step = symbolic_step(pattern)
    if step < 2 or step > min(n, m):
        return None
    graph = class_of(pattern, step)
    if graph is None:
        return None
    ends = sorted({0, n % step, m % step, step})
    return tuple(
        ResidueGroup(first, last, -(-(n - first) // step), -(-(m - first) // step), graph)
        for first, last in pairwise(ends)
    )
