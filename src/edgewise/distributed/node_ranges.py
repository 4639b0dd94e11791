"""Bounds of the keys of relations, by the rules alone: a key beyond the nodes has no rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewise.language import nodes
from edgewise.language.statements import atoms

Range = tuple[int, int]  # least and largest
FAR = 1 << 62
EVERY: Range = (-FAR, FAR)


def head_ranges(rule: nodes.Rule, known: Mapping[str, Sequence[Range]]) -> list[Range]:
    """Bounds of each key of the head of a rule, from those of the relations that it reads.

    >>> from edgewise import R, V
    >>> rule = R.h(V.J) <= (R.x(V.I), R.special.add(V.I, 2, V.J))
    >>> head_ranges(rule, {"x": [(0, 4)]})
    [(2, 6)]
    """
    found: dict[str, Range] = {}
    specials = [one for one in atoms(rule.body) if isinstance(one, nodes.SpecialAtom)]
    specials = [one for one in specials if not one.negated and one.formula is None]
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.Atom) and not atom.negated and atom.relation in known:
            for term, bounds in zip(atom.terms, known[atom.relation], strict=True):
                _narrow(found, term, bounds)
    for _ in specials:  # each pass carries bounds over one more of them
        for atom in specials:
            of_terms = [_range(found, term) for term in atom.terms]
            for term, computed in zip(atom.terms, _solved(atom.name, of_terms), strict=False):
                _narrow(found, term, computed)
    return [_range(found, term) for term in rule.head.terms]


def _range(found: Mapping[str, Range], term: nodes.Term) -> Range:
    if isinstance(term, nodes.Variable):
        return found.get(term.name, EVERY)
    return (term, term) if isinstance(term, int) else EVERY


def _narrow(found: dict[str, Range], term: nodes.Term, bounds: Range) -> None:
    if isinstance(term, nodes.Variable):
        low, high = found.get(term.name, EVERY)
        found[term.name] = max(low, bounds[0]), min(high, bounds[1])


def _solved(name: str, bounds: Sequence[Range]) -> list[Range]:
    """Bounds of each term of a predicate from those of the others."""
    if name in ("eq", "next"):
        a, b = bounds
        step = int(name == "next")
        return [_less(b, (step, step)), _plus(a, (step, step))]
    if name not in ("add", "sub", "mul", "div", "mod"):
        return []
    a, b, c = bounds
    by, same = b
    match name:
        case "add":
            return [_less(c, b), _less(c, a), _plus(a, b)]
        case "sub":
            return [_plus(c, b), _less(a, c), _less(a, b)]
        case "mul":
            return [_over(c, b), _over(c, a), _times(a, b)]
        case "div" if by == same > 0:
            return [EVERY, EVERY, (a[0] // by, a[1] // by)]
        case "mod" if by == same > 0:
            return [EVERY, EVERY, (0, by - 1)]
    return []


def _plus(a: Range, b: Range) -> Range:
    return a[0] + b[0], a[1] + b[1]


def _less(a: Range, b: Range) -> Range:
    return a[0] - b[1], a[1] - b[0]


def _times(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _over(a: Range, b: Range) -> Range:
    """What times a constant is in `a`."""
    by, same = b
    return (-(-a[0] // by), a[1] // by) if by == same > 0 else EVERY
