"""A mask: the conditions under which a query attends to a key, as a small tree.

Leaves are the conditions of rules: relations, arithmetic, patterns, negated or not. Variables that
are neither the query's, nor the key's, nor shared by both are existential: a pair holds once,
however many values of them there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

from edgewise.language import nodes

Condition = nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom


@dataclass(frozen=True)
class Conjunction:
    """Pairs for which all conditions hold for some values of their other variables, and that all
    `parts` have; conditions of a part share no existential variable with others."""

    conditions: tuple[Condition, ...] = ()
    parts: tuple[Mask, ...] = ()


@dataclass(frozen=True)
class Disjunction:
    """Pairs that some part has; of a derived relation the part of each rule, and its `facts`."""

    parts: tuple[Mask, ...]
    facts: nodes.Atom | None = None


@dataclass(frozen=True)
class Negation:
    """Pairs that a part has not."""

    part: Mask


Mask = Conjunction | Disjunction | Negation


def map_conditions(
    mask: Mask, change: Callable[[tuple[Condition, ...]], tuple[Condition, ...]]
) -> Mask:
    """The same tree with other conditions."""
    match mask:
        case Conjunction(conditions, parts):
            return Conjunction(
                change(conditions), tuple(map_conditions(part, change) for part in parts)
            )
        case Disjunction(parts, facts):
            changed = None if facts is None else change((facts,))[0]
            assert changed is None or isinstance(changed, nodes.Atom)
            return Disjunction(tuple(map_conditions(part, change) for part in parts), changed)
        case Negation(part):
            return Negation(map_conditions(part, change))
    assert_never(mask)


def conditions_in(mask: Mask) -> Iterator[Condition]:
    """Every condition, left to right."""
    match mask:
        case Conjunction(conditions, parts):
            yield from conditions
            for part in parts:
                yield from conditions_in(part)
        case Disjunction(parts):
            for part in parts:
                yield from conditions_in(part)
        case Negation(part):
            yield from conditions_in(part)
        case _:
            assert_never(mask)


def show_mask(mask: Mask) -> str:
    """The tree as text.

    >>> from edgewise.language import R, V
    >>> near = Conjunction((R._sentence(V.I, V.S), R._sentence(V.J, V.S)))
    >>> show_mask(Negation(near))
    'not (R._sentence(V.I, V.S), R._sentence(V.J, V.S))'
    """
    match mask:
        case Conjunction(conditions, parts):
            return f"({', '.join([*map(repr, conditions), *map(show_mask, parts)])})"
        case Disjunction(parts):
            return f"({' or '.join(map(show_mask, parts))})"
        case Negation(part):
            return f"not {show_mask(part)}"
    assert_never(mask)
