"""Conditions on keys: bounds of differences, closed under paths, and atoms that must hold.

A path of rules is a conjunction of such; where two meet, bounds add: window(2) after window(3) is
window(5), and what is causal stays causal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from edgewise.language import nodes

ZERO = "0"  # the number 0, from which constants are counted
HIDDEN = "?"  # begins the names of variables that are projected away
Bounds = dict[tuple[str, str], float]  # (a, b) → the most that a − b can be


@dataclass(frozen=True)
class Literal:
    """An atom, predicate or pattern over variables of a condition, which says nothing else."""

    node: Any  # without its terms
    terms: tuple[str, ...]


@dataclass(frozen=True)
class Condition:
    """a − b ≤ c for all (a, b, c) of `bounds`, and all literals hold for some hidden variables."""

    bounds: frozenset[tuple[str, str, float]] = frozenset()
    literals: frozenset[Literal] = frozenset()

    @property
    def table(self) -> Bounds:
        return {(a, b): c for a, b, c in self.bounds}

    def implies(self, other: Condition) -> bool:
        """Whether it holds only where the other does; False where that is not seen."""
        mine = self.table
        return other.literals <= self.literals and all(
            mine.get((a, b), math.inf) <= c for a, b, c in other.bounds
        )


def constant(value: nodes.Constant) -> str:
    """The name of a constant among variables."""
    return f"={value!r}"


def is_constant(name: str) -> bool:
    return name.startswith("=") or name == ZERO


def is_number(name: str) -> bool:
    """Whether it is an integer constant, whose bounds follow from those of 0."""
    return name.startswith("=") and name[1:].lstrip("-").isdigit()


def is_text(name: str) -> bool:
    return name.startswith("=") and not is_number(name)


def condition(
    bounds: Mapping[tuple[str, str], float], literals: Iterable[Literal]
) -> Condition | None:
    """The condition with all bounds that follow; None where it never holds."""
    literals = frozenset(literals)
    names = {name for pair in bounds for name in pair}
    names |= {term for literal in literals for term in literal.terms}
    found: Bounds = dict(bounds)
    for name in names:
        if is_number(name):
            value = int(name[1:])
            _tighten(found, (name, ZERO), value)
            _tighten(found, (ZERO, name), -value)
    closed = _closed(found)
    if closed is None or any(
        is_text(a) and is_text(b) and c == 0 == closed.get((b, a)) for (a, b), c in closed.items()
    ):
        return None
    return Condition(frozenset((a, b, c) for (a, b), c in closed.items()), literals)


def _tighten(bounds: Bounds, pair: tuple[str, str], most: float) -> None:
    bounds[pair] = min(bounds.get(pair, math.inf), most)


def _closed(bounds: Bounds) -> Bounds | None:
    """Shortest paths (Floyd–Warshall); None where a − a < 0."""
    names = sorted({name for pair in bounds for name in pair})
    found = dict(bounds)
    for via in names:
        into = [(a, c) for (a, b), c in found.items() if b == via]
        out = [(b, c) for (a, b), c in found.items() if a == via]
        for (a, first), (b, second) in product(into, out):
            if a == b and first + second < 0:
                return None
            if a != b and first + second < found.get((a, b), math.inf):
                found[a, b] = first + second
    return found


def together(conditions: Sequence[Condition]) -> Condition | None:
    """All of them; None where they contradict one another."""
    bounds: Bounds = {}
    for one in conditions:
        for a, b, c in one.bounds:
            _tighten(bounds, (a, b), c)
    return condition(bounds, (literal for one in conditions for literal in one.literals))


def renamed(one: Condition, name: Callable[[str], str]) -> Condition:
    """The same over other names; different variables may become one."""
    bounds: Bounds = {}
    for a, b, c in one.bounds:
        if name(a) != name(b):
            _tighten(bounds, (name(a), name(b)), c)
    literals = {replace(x, terms=tuple(map(name, x.terms))) for x in one.literals}
    return condition(bounds, literals) or NEVER


NEVER = Condition(frozenset({(ZERO, ZERO, -1.0)}))


def projected(one: Condition, visible: Iterable[str]) -> Condition:
    """Without variables that are not visible, but for those that link visible ones."""
    shown = {*visible, ZERO}
    names = _representatives(one, shown)
    one = _linking(_folded(renamed(one, lambda name: names.get(name, name)), shown), shown)
    used = {term for literal in one.literals for term in literal.terms}
    left = {n for n in used if n not in shown and not is_constant(n)}
    fresh = {old: f"{HIDDEN}{number}" for number, old in enumerate(_in_order(one, left))}
    held = shown | used | {name for a, b, _ in one.bounds for name in (a, b) if is_text(name)}
    bounds = frozenset((a, b, c) for a, b, c in one.bounds if a in held and b in held)
    return renamed(Condition(bounds, one.literals), lambda name: fresh.get(name, name))


def _folded(one: Condition, shown: set[str]) -> Condition:
    """Without hidden variables of which another one does: all that is said of them is said of it.

    Of `edge(I, A), edge(I, B), red(B)` the second edge is one that the first asks for.
    """
    literals, bounds = set(one.literals), one.table
    hidden = {t for x in literals for t in x.terms if t not in shown and not is_constant(t)}
    waiting = sorted(hidden)
    while waiting:
        name = waiting.pop(0)
        mine = {x for x in literals if name in x.terms}
        others = literals - mine
        for other in sorted({t for x in others for t in x.terms} - {name}):
            if _stands_for(other, name, mine, others, bounds):
                literals = others
                bounds = {pair: c for pair, c in bounds.items() if name not in pair}
                hidden.remove(name)
                waiting = sorted(hidden)
                break
    return Condition(frozenset((a, b, c) for (a, b), c in bounds.items()), frozenset(literals))


def _stands_for(
    other: str, name: str, mine: set[Literal], others: set[Literal], bounds: Bounds
) -> bool:
    """Whether all that is said of one name holds of another."""

    def moved(term: str) -> str:
        return other if term == name else term

    for (a, b), most in bounds.items():
        pair = moved(a), moved(b)
        least = 0.0 if pair[0] == pair[1] else bounds.get(pair, math.inf)
        if name in (a, b) and least > most:
            return False
    return all(replace(x, terms=tuple(map(moved, x.terms))) in others for x in mine)


def _linking(one: Condition, shown: set[str]) -> Condition:
    """Without literals at the end of a branch: that there is some atom there links nothing."""
    literals = set(one.literals)
    bounds = one.table
    compared = [pair for pair in bounds if not any(map(is_constant, pair))]
    equal = {a: min(a, b) for a, b in compared if bounds[a, b] == 0 == bounds.get((b, a))}
    while True:
        terms = [t for x in literals for t in set(x.terms) if t not in shown and not is_constant(t)]
        near = [pair for pair in compared if shown | set(terms) >= {*pair}]
        between = _between(literals, near, {t: equal.get(t, t) for t in shown})
        alone = {t for t in terms if terms.count(t) == 1} - between
        loose = {x for x in literals if alone & set(x.terms)}
        if not loose:
            return replace(one, literals=frozenset(literals))
        literals -= loose


def _between(
    literals: set[Literal], compared: Sequence[tuple[str, str]], shown: Mapping[str, str]
) -> set[str]:
    """Hidden variables that are compared, in a group that reaches two visible ones; `shown` has
    one name for those that are equal."""
    groups: list[set[str]] = []
    for names in [*(set(x.terms) for x in literals), *map(set, compared)]:
        hidden = {t for t in names if t not in shown and not is_constant(t)}
        meets = [group for group in groups if group & hidden]
        if hidden:
            groups = [group for group in groups if not group & hidden]
            groups.append({t for t in names if not is_constant(t)}.union(*meets))
    apart = [group for group in groups if len({shown[t] for t in group & shown.keys()}) > 1]
    return {t for pair in compared for t in pair if any(t in group for group in apart)}


def _representatives(one: Condition, shown: set[str]) -> dict[str, str]:
    """For a hidden variable that equals another one, that one."""
    bounds, found = one.table, {}
    names = sorted({name for pair in bounds for name in pair})
    for a in names:
        if a in shown or is_constant(a):
            continue
        equal = [b for b in names if bounds.get((a, b)) == 0 == bounds.get((b, a))]
        better = [b for b in equal if b in shown or is_constant(b)] or [b for b in equal if b < a]
        if better:
            found[a] = min(better, key=lambda b: (b not in shown, b))
    return found


def _in_order(one: Condition, names: set[str]) -> list[str]:
    """Hidden variables by where they first occur, so that equal conditions have equal names."""

    def rank(literal: Literal) -> tuple[Any, ...]:
        blank = [HIDDEN if term in names else term for term in literal.terms]
        return blank, repr(literal.node), literal.terms

    found: list[str] = []
    waiting = sorted(one.literals, key=rank)
    while waiting:
        # literals that are linked to what is named come first: a walk is named along its steps
        known = [[t not in names or t in found for t in x.terms] for x in waiting]
        literal = waiting[max(range(len(waiting)), key=lambda at: (known[at], -at))]
        waiting.remove(literal)
        found += [t for t in dict.fromkeys(literal.terms) if t in names and t not in found]
    return found


def reduced(conditions: Iterable[Condition]) -> list[Condition]:
    """Without those that imply another one, and those that never hold."""
    left: list[Condition] = []
    for one in conditions:
        if one == NEVER or any(one.implies(other) for other in left):
            continue
        left = [other for other in left if not other.implies(one)] + [one]
    return left


def widest(conditions: Sequence[Condition]) -> Condition:
    """One condition that all imply: common literals without hidden variables, largest bounds."""
    tables = [one.table for one in conditions]
    pairs = set(tables[0]).intersection(*tables[1:])
    shared = frozenset.intersection(*(one.literals for one in conditions))
    literals = {x for x in shared if not any(t.startswith(HIDDEN) for t in x.terms)}
    bounds = {
        pair: max(table[pair] for table in tables)
        for pair in pairs
        if not any(name.startswith(HIDDEN) for name in pair)
    }
    return Condition(frozenset((a, b, c) for (a, b), c in bounds.items()), frozenset(literals))
