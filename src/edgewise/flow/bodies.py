"""The condition of a body: comparisons as bounds of differences, everything else as literals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from edgewise.flow.conditions import (
    NEVER,
    ZERO,
    Bounds,
    Condition,
    Literal,
    condition,
    constant,
    renamed,
    together,
)
from edgewise.graphs import Pattern, algebra, causal, full, window
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.passes.formula_patterns import formula_pattern

Interval = tuple[float, float]  # of i − j
INF = math.inf
MOST = 64  # conditions of one body; above, those of derived relations are left out
COMPARED: dict[str, Interval] = {
    "leq": (-INF, 0), "lt": (-INF, -1), "geq": (0, INF), "gt": (1, INF), "eq": (0, 0),
    "next": (-1, -1),
}  # fmt: skip


def term_name(term: nodes.Term) -> str:
    return f"v{term.name}" if isinstance(term, nodes.Variable) else constant(term)


def key(position: int) -> str:
    """The name of a key of the rule head."""
    return f"k{position}"


def body_cases(
    rule: nodes.Rule, domains: Mapping[str, Sequence[Condition]]
) -> tuple[list[Condition], bool]:
    """The conditions under which a body may hold, one of which does, and whether they are exact.

    `domains` are those of relations that rules derive, over their keys.
    """
    fixed: list[Condition] = []
    choices: list[list[Condition]] = []
    sums: list[tuple[str, str, str]] = []
    for atom in atoms(rule.body):
        match atom:
            case nodes.SpecialAtom():
                cases, total = _special(atom)
                sums += total
            case nodes.PatternAtom():
                cases = _pattern_cases(atom.pattern, atom)
            case nodes.Atom():
                cases = _atom_cases(atom, domains)
            case _:
                continue
        if len(cases) == 1:
            fixed += cases
        else:
            choices.append(cases)
    exact = math.prod(map(len, choices)) <= MOST
    chosen = product(*choices) if exact else [()]
    found = (together([*fixed, *some]) for some in chosen)
    return [made for one in found if one is not None and (made := _with_sums(one, sums))], exact


def _atom_cases(atom: nodes.Atom, domains: Mapping[str, Sequence[Condition]]) -> list[Condition]:
    names = tuple(map(term_name, atom.terms))
    if atom.relation in domains and not atom.negated:
        table = {key(p): name for p, name in enumerate(names)}
        prefix = f"{atom.relation}@{','.join(names)}"
        return [renamed(one, lambda n: _inner(n, table, prefix)) for one in domains[atom.relation]]
    if atom.carries_value and len(atom.terms) < 2:
        return [Condition()]  # a value that is read: that it is there says little
    plain = replace(atom, weight=None, hidden=False)
    return [_one({}, [literal_of(plain, names)])]


def literal_of(node: Any, names: tuple[str, ...]) -> Literal:
    """An atom over these names; its own terms are numbered."""
    terms = tuple(nodes.Variable(f"_{p}") for p in range(len(names)))
    return Literal(replace(node, terms=terms, place=None), names)


def _inner(name: str, table: Mapping[str, str], prefix: str) -> str:
    """The name of a variable of another relation's condition in this body."""
    if name in table:
        return table[name]
    return f"?{prefix}.{name}" if name.startswith(("?", "v")) else name


def _one(bounds: Bounds, literals: Sequence[Literal] = ()) -> Condition:
    return condition(bounds, literals) or NEVER


def _difference(a: str, b: str, low: float, high: float) -> Bounds:
    """low ≤ a − b ≤ high."""
    found: Bounds = {}
    if high < INF:
        found[a, b] = high
    if low > -INF:
        found[b, a] = -low
    return found


def _special(atom: nodes.SpecialAtom) -> tuple[list[Condition], list[tuple[str, str, str]]]:
    names = tuple(map(term_name, atom.terms))
    opaque = literal_of(atom, names)
    if atom.carries_value:
        return [Condition()], []
    if atom.negated or atom.function is not None:
        return [_one({}, [opaque])], []
    if atom.name in COMPARED and names[0] != names[1]:
        return [_one(_difference(names[0], names[1], *COMPARED[atom.name]))], []
    if atom.name in ("add", "sub"):
        x, y, z = names if atom.name == "add" else (names[2], names[1], names[0])
        natural = {(ZERO, name): 0.0 for name in (x, y, z)}  # arithmetic is over numbers from 0 on
        return [_one(natural)], [(x, y, z)]
    if atom.formula is not None and len(atom.terms) == 2:
        pattern = formula_pattern(atom.formula)
        if pattern is not None:
            return _pattern_cases(pattern, atom), []
    return [_one({}, [opaque])], []


def _with_sums(one: Condition, sums: Sequence[tuple[str, str, str]]) -> Condition | None:
    """With what x + y = z says about differences: z − x is between the bounds of y."""
    found: Condition | None = one
    for _ in range(2):
        for x, y, z in sums:
            for part, other in ((x, y), (y, x)):
                if found is None:
                    return None
                table = found.table
                most, least = table.get((other, ZERO), INF), -table.get((ZERO, other), INF)
                more = _difference(z, part, least, most)
                apart = (table.get((z, part), INF), -table.get((part, z), INF))
                more |= _difference(other, ZERO, apart[1], apart[0])
                found = together([found, _one(more)])
    return found


def _pattern_cases(
    pattern: Pattern, atom: nodes.PatternAtom | nodes.SpecialAtom
) -> list[Condition]:
    """A condition for each interval of distances that a pattern allows."""
    i, j = map(term_name, atom.terms[-2:])
    # what a pattern does not hold, pairs of other keys than positions are too
    cases, exact = ([(-INF, INF)], False) if atom.negated else intervals(pattern)
    node = nodes.PatternAtom(pattern, atom.terms[-2:], negated=atom.negated)
    literals = [] if exact else [literal_of(node, (i, j))]
    if i == j:
        cases = [(-INF, INF)] if any(low <= 0 <= high for low, high in cases) else []
        return [_one({}, literals) for _ in cases]
    return [_one(_difference(i, j, *case), literals) for case in cases]


def intervals(pattern: Pattern) -> tuple[list[Interval], bool]:
    """Intervals of i − j that hold all pairs of a pattern, and whether they are all of it.

    >>> intervals(causal() & window(3))
    ([(0, 3)], True)
    """
    match pattern:
        case causal():
            return [(0, INF)], True
        case full():
            return [(-INF, INF)], True
        case window(radius=radius):
            return [(-radius, radius)], True
        case algebra.transpose(pattern=inner):
            cases, exact = intervals(inner)
            return [(-high, -low) for low, high in cases], exact
        case algebra.intersection(members=members):
            return _intersection([intervals(member) for member in members])
        case algebra.union(members=members):
            parts = [intervals(member) for member in members]
            return [case for cases, _ in parts for case in cases], all(e for _, e in parts)
        case algebra.complement(pattern=inner):
            cases, exact = intervals(inner)
            return (_outside(cases), True) if exact else ([(-INF, INF)], False)
        case algebra.difference(left=left, right=right):
            cases, exact = intervals(right)
            rest = (_outside(cases), True) if exact else ([(-INF, INF)], False)
            return _intersection([intervals(left), rest])
    return [(-INF, INF)], False


def _intersection(parts: Sequence[tuple[list[Interval], bool]]) -> tuple[list[Interval], bool]:
    found: list[Interval] = [(-INF, INF)]
    for cases, _ in parts:
        pairs = product(found, cases)
        both = ((max(a, c), min(b, d)) for (a, b), (c, d) in pairs)
        found = [(low, high) for low, high in both if low <= high]
    return found, all(exact for _, exact in parts)


def _outside(cases: Sequence[Interval]) -> list[Interval]:
    """The distances that no interval holds."""
    found: list[Interval] = [(-INF, INF)]
    for low, high in cases:
        pieces: Iterator[Any] = (
            piece for a, b in found for piece in ((a, min(b, low - 1)), (max(a, high + 1), b))
        )
        found = [(a, b) for a, b in pieces if a <= b]
    return found
