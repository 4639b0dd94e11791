"""A conjunction, split into conditions that can be looked at one by one.

Conditions that share an existential variable stay together. Of those that reach from the query to
the key, what the query alone says is one side, what the key alone says the other; they meet in the
variables that both have, and in tests on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgewise.ground.joins.body import SAMPLE
from edgewise.language import nodes
from edgewise.language.specials import computes
from edgewise.language.terms import variables
from edgewise.plan.mask import Condition


@dataclass(frozen=True)
class Sides:
    """Conditions on the query, conditions on the key, the variables both have, and tests."""

    query: tuple[Condition, ...]
    key: tuple[Condition, ...]
    shared: tuple[str, ...]
    tests: tuple[Condition, ...]


@dataclass(frozen=True)
class Joined:
    """Conditions that are joined as they are; `negated`, they are one that must not hold."""

    conditions: tuple[Condition, ...]
    negated: bool = False


@dataclass(frozen=True)
class Positions:
    """A pattern, from the query to the key."""

    pattern: nodes.PatternAtom


@dataclass(frozen=True)
class Filter:
    """Conditions on the query alone, on the key alone, or on neither."""

    conditions: tuple[Condition, ...]
    query: bool
    key: bool


Part = Sides | Joined | Positions | Filter


def names_of(items: Iterable[Condition]) -> set[str]:
    return {v.name for item in items for v in variables(item.terms)}


def split(conditions: Sequence[Condition], query: str, key: str) -> list[Part]:
    """The parts of a conjunction; a pair holds if it holds in each."""
    outer = {query, key, SAMPLE.name}
    return [_part(group, query, key, outer) for group in connected(conditions, outer)]


def connected(conditions: Sequence[Condition], outer: set[str]) -> list[list[Condition]]:
    """Groups of conditions that share no variable but those of `outer`."""
    groups: list[tuple[set[str], list[Condition]]] = []
    for item in conditions:
        own = names_of([item]) - outer
        meets = [group for group in groups if group[0] & own]
        names = own.union(*(group[0] for group in meets))
        items = [c for group in meets for c in group[1]]
        groups = [group for group in groups if not any(group is met for met in meets)]
        groups.append((names, [*items, item]))
    return [items for _, items in groups]


def _part(group: list[Condition], query: str, key: str, outer: set[str]) -> Part:
    names = names_of(group)
    if not {query, key} <= names:
        return Filter(tuple(group), query in names, key in names)
    if len(group) == 1 and names <= outer:
        (item,) = group
        if isinstance(item, nodes.PatternAtom):
            return Positions(item)
        if isinstance(item, nodes.Atom):
            return Joined((_positive(item),), item.negated)
        return Sides((), (), (), (item,))
    return _sides(group, query, key, outer) or Joined(tuple(group))


def _positive(item: nodes.Atom) -> nodes.Atom:
    return nodes.Atom(item.relation, item.terms, None, True)


def _sides(group: list[Condition], query: str, key: str, outer: set[str]) -> Sides | None:
    """The two sides; None where an atom is on both."""
    atoms = [a for a in group if isinstance(a, nodes.Atom) and not a.negated]
    others = [a for a in group if not (isinstance(a, nodes.Atom) and not a.negated)]
    if any({query, key} <= names_of([atom]) for atom in atoms):
        return None
    far = len(atoms) + 1
    from_query, from_key = _distances(atoms, query, outer), _distances(atoms, key, outer)
    left: list[Condition] = []
    right: list[Condition] = []
    apart: list[Condition] = []
    for atom, q, k in zip(atoms, from_query, from_key, strict=True):
        (apart if min(q, k) == far else left if q <= k else right).append(atom)
    for some in connected(apart, outer):
        of_query, of_key = (
            _decided(some, others, names_of(side) | {own})
            for side, own in ((left, query), (right, key))
        )
        (right if of_key > of_query else left).extend(some)
    tests = _assigned(others, left, right, query, key)
    shared = (names_of(left) & names_of(right)) - outer
    return Sides(tuple(left), tuple(right), tuple(sorted(shared)), tuple(tests))


def _decided(apart: list[Condition], tests: list[Condition], known: set[str]) -> int:
    """How many tests compare atoms that no other leads to with one side of the pair."""
    own = names_of(apart)
    return sum(
        bool(names & own and names & known and names <= own | known)
        for names in (names_of([test]) for test in tests)
    )


def _distances(atoms: Sequence[nodes.Atom], start: str, outer: set[str]) -> list[int]:
    """How many atoms lead from a variable to each; one more than there are where none do."""
    far = len(atoms) + 1
    names = [names_of([atom]) for atom in atoms]
    found = [0 if start in own else far for own in names]
    for step in range(len(atoms)):
        reached = set().union(*(n for n, d in zip(names, found, strict=True) if d == step)) - outer
        found = [
            step + 1 if d == far and own & reached else d
            for own, d in zip(names, found, strict=True)
        ]
    return found


def _assigned(
    others: list[Condition], left: list[Condition], right: list[Condition], query: str, key: str
) -> list[Condition]:
    """Add each condition that one side decides, or can compute a variable by, to that side; the
    others are tests."""
    waiting, moved = list(others), True
    while moved:
        moved = False
        for item in list(waiting):
            for side, own in ((left, query), (right, key)):
                known = names_of(side) | {own, SAMPLE.name}
                free = names_of([item]) - known
                if not free or _computes(item, free, {query, key}):
                    side.append(item)
                    waiting.remove(item)
                    moved = True
                    break
    return waiting


def _computes(item: Condition, free: set[str], ends: set[str]) -> bool:
    """Whether a predicate has one value for its free variable, not an end of the pair."""
    if not isinstance(item, nodes.SpecialAtom) or item.negated or len(free) != 1 or free & ends:
        return False
    if item.name == "mul":  # a factor of 0 leaves the other one open
        return False
    places = [
        p for p, t in enumerate(item.terms) if isinstance(t, nodes.Variable) and t.name in free
    ]
    return len(places) == 1 and places[0] in computes(item)
