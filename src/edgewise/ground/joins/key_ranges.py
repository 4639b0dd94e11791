"""Comparisons as ranges of keys: of `S <= T, T - S <= 60`, T runs from S to S + 60."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from edgewise.graphs import Pattern, causal, window
from edgewise.graphs.algebra import complement, difference, intersection, transpose, union
from edgewise.ground.index import STRINGS
from edgewise.language import nodes
from edgewise.language.term_expressions import MIRRORED, Formula, Tree
from edgewise.language.terms import variables

SIGNS = {"leq": "<=", "lt": "<", "geq": ">=", "gt": ">"}
FAR = 1 << 60  # further than any two keys
LARGEST = 1 << 19  # coefficient with which sums of keys stay below 2⁶³

Comparison = tuple[str, "LinearTerm"]  # of a variable: `<=` or `>=`, and what it is compared with
Distances = list[tuple[int, int]]  # disjoint intervals in order, with their ends


@dataclass(frozen=True)
class LinearTerm:
    """constant + Σ coefficient · variable."""

    constant: int = 0
    parts: tuple[tuple[str, int], ...] = ()

    def plus(self, other: LinearTerm, sign: int = 1) -> LinearTerm:
        parts = dict(self.parts)
        for name, factor in other.parts:
            parts[name] = parts.get(name, 0) + sign * factor
        return LinearTerm(
            self.constant + sign * other.constant,
            tuple((name, factor) for name, factor in parts.items() if factor),
        )

    def times(self, factor: int) -> LinearTerm:
        return LinearTerm().plus(self, factor)

    def value(self, columns: Mapping[str, Tensor]) -> Tensor:
        total = torch.tensor(self.constant)
        for name, factor in self.parts:
            total = total + (columns[name] if factor == 1 else columns[name] * factor)
        return total


@dataclass(frozen=True)
class KeyRange:
    """All of `lows` ≤ variable ≤ all of `highs`, which are of variables bound before."""

    variable: str
    lows: tuple[LinearTerm, ...] = ()
    highs: tuple[LinearTerm, ...] = ()

    def ends(self, columns: Mapping[str, Tensor], count: int) -> tuple[Tensor, Tensor]:
        """The least and the largest key for each grounding; strings compare with nothing."""
        low = reduce(torch.maximum, (end.value(columns) for end in self.lows), torch.tensor(-FAR))
        most = torch.tensor(STRINGS - 1)
        high = reduce(torch.minimum, (end.value(columns) for end in self.highs), most)
        return low.expand(count), high.expand(count)


def comparisons(literals: Sequence[nodes.Expression]) -> dict[str, list[Comparison]]:
    """How literals compare each variable with others."""
    found: dict[str, list[Comparison]] = {}
    for literal in literals:
        if isinstance(literal, nodes.SpecialAtom | nodes.PatternAtom):
            for variable in variables(literal.terms):
                found.setdefault(variable.name, []).extend(_ends(literal, variable.name))
    return found


def key_range(
    name: str, compared: Mapping[str, list[Comparison]], known: set[str]
) -> KeyRange | None:
    """What comparisons say about a variable once others are known; None if nothing."""
    ends = [
        (sign, end) for sign, end in compared.get(name, ()) if {v for v, _ in end.parts} <= known
    ]
    if not any(end.parts for _, end in ends):
        return None
    lows = tuple(end for sign, end in ends if sign == ">=")
    return KeyRange(name, lows, tuple(end for sign, end in ends if sign == "<="))


def _ends(literal: nodes.Expression, name: str) -> Iterator[Comparison]:
    """The signs `<=` and `>=` with which a variable compares in a literal, and to what."""
    for left, sign, right in _compared(literal):
        if sign in ("<", ">"):
            right = right.plus(LinearTerm(-1 if sign == "<" else 1))
        rest = right.plus(left, -1)  # 0 ≤ rest, 0 ≥ rest or both
        factor = dict(rest.parts).get(name, 0)
        large = sum(abs(f) for _, f in rest.parts) > LARGEST or abs(rest.constant) > FAR
        if abs(factor) != 1 or large:
            continue
        end = rest.plus(LinearTerm(0, ((name, factor),)), -1).times(-factor)
        for one in ("<=", ">=") if sign == "==" else (sign[0] + "=",):
            yield (one if factor == -1 else MIRRORED[one]), end


def _compared(literal: nodes.Expression) -> Iterator[tuple[LinearTerm, str, LinearTerm]]:
    """The comparisons of linear terms that follow from a literal."""
    match literal:
        case nodes.PatternAtom(negated=False):
            low, high = _hull(literal.pattern)
            i, j = (_linear(("term", p), literal.terms) for p in (-2, -1))
            if i is not None and j is not None:
                apart = j.plus(i, -1)
                if low > -FAR:
                    yield apart, ">=", LinearTerm(low)
                if high < FAR:
                    yield apart, "<=", LinearTerm(high)
        case nodes.SpecialAtom(negated=False, formula=Formula() as formula):
            yield from _of_formula(formula, literal.terms)
        case nodes.SpecialAtom(negated=False) if literal.name in SIGNS:
            left, right = (_linear(("term", p), literal.terms) for p in (0, 1))
            if left is not None and right is not None:
                yield left, SIGNS[literal.name], right


def _of_formula(
    formula: Formula, terms: tuple[nodes.Term, ...]
) -> Iterator[tuple[LinearTerm, str, LinearTerm]]:
    left, sign, right = formula.left, formula.sign, formula.right
    if isinstance(right, tuple) and right[0] == "abs":
        left, sign, right = right, MIRRORED[sign], left
    most = _linear(right, terms)
    if most is None or sign == "!=":
        return
    if isinstance(left, tuple) and left[0] == "abs":
        inner = _linear(left[1], terms)
        if inner is not None and sign in ("<", "<=", "=="):
            sign = "<=" if sign == "==" else sign
            yield inner, sign, most
            yield inner.times(-1), sign, most
        return
    total = _linear(left, terms)
    if total is not None:
        yield total, sign, most


def _linear(tree: Tree, terms: tuple[nodes.Term, ...]) -> LinearTerm | None:
    """A tree as a linear term; None if it is not one."""
    if isinstance(tree, int):
        return LinearTerm(tree)
    name, *operands = tree
    if name == "term":
        term = terms[operands[0]]  # type: ignore[index]
        if isinstance(term, nodes.Variable):
            return LinearTerm(0, ((term.name, 1),))
        return LinearTerm(term) if isinstance(term, int) else None
    if name not in ("+", "-", "*"):
        return None
    first, second = (_linear(operand, terms) for operand in operands)
    if first is None or second is None:
        return None
    if name != "*":
        return first.plus(second, 1 if name == "+" else -1)
    if first.parts and second.parts:
        return None
    return second.times(first.constant) if second.parts else first.times(second.constant)


def _hull(pattern: Pattern) -> tuple[int, int]:
    """The least and the largest j − i of a pattern, maybe further; ±FAR without one."""
    if isinstance(pattern, intersection):
        hulls = [_hull(member) for member in pattern.members]
        return max(low for low, _ in hulls), min(high for _, high in hulls)
    found = _distances(pattern)
    if found is None:
        return -FAR, FAR
    return (found[0][0], found[-1][1]) if found else (1, 0)


def _distances(pattern: Pattern) -> Distances | None:
    """All j − i of a pattern that is made of comparisons; None for others."""
    match pattern:
        case causal():
            return [(-FAR, 0)]
        case window():
            return [(-pattern.radius, pattern.radius)]
        case transpose():
            found = _distances(pattern.pattern)
            return None if found is None else [(-high, -low) for low, high in reversed(found)]
        case complement():
            found = _distances(pattern.pattern)
            return None if found is None else _others(found)
        case difference():
            left, right = _distances(pattern.left), _distances(pattern.right)
            return None if left is None or right is None else _both(left, _others(right))
        case union() | intersection():
            parts = [found for m in pattern.members if (found := _distances(m)) is not None]
            if len(parts) < len(pattern.members):
                return None
            if isinstance(pattern, intersection):
                return reduce(_both, parts)
            return _others(reduce(_both, map(_others, parts)))
    return None


def _others(found: Distances) -> Distances:
    """The integers between intervals, from −FAR to FAR."""
    ends = [-FAR - 1, *(end for pair in found for end in pair), FAR + 1]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [(low + 1, high - 1) for low, high in pairs if low + 1 <= high - 1]


def _both(one: Distances, other: Distances) -> Distances:
    pairs = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return sorted((low, high) for low, high in pairs if low <= high)
