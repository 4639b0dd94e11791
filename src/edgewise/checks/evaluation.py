"""What only data shows to be wrong: errors that `solve` and compiled models raise alike."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from edgewise.errors import EdgewiseError
from edgewise.functions.definition import CallFailed, ShapeMismatch
from edgewise.language import nodes
from edgewise.language.dependencies import needs
from edgewise.language.functions import definition
from edgewise.language.statements import SUM, aggregation_of, atoms, combination, written_for

LIMIT = 1_000_000  # atoms; the reference is for samples that a person can look at
ROUNDS = 100_000


class NotANumber(EdgewiseError):
    """A NaN in a fact or a weight would spread to every value that depends on it."""

    code = "not-a-number"
    example = 'Program([R.h <= R.a]).solve([R.a[torch.tensor(float("nan"))]])'
    instead = "Program([R.h <= R.a]).solve([R.a[0.0]])"


class OutOfDomain(EdgewiseError):
    """A weight family has one weight for each value of its domain, and none for any other."""

    code = "out-of-domain"
    example = "Program([R.h(V.T) <= R.a(V.T)[W.e(V.T)[2,]]], domains={V.T: 3}).solve([R.a(5)[1.0]])"
    instead = "Program([R.h(V.T) <= R.a(V.T)[W.e(V.T)[2,]]], domains={V.T: 6}).solve([R.a(5)[1.0]])"


class CyclicRecursion(EdgewiseError):
    """A sum around a cycle has no fixed point in general, so it is refused, not iterated."""

    code = "cyclic-recursion"
    example = (
        "Program([R.p(V.Y) <= R.s(V.Y), R.p(V.Y) <= (R.p(V.X), R._e(V.X, V.Y))])"
        ".solve([R.s(1)[1.0], R.e(1, 2), R.e(2, 1)])"
    )
    instead = (
        "Program([R.p(V.Y) <= R.s(V.Y), R.p(V.Y) <= (R.p(V.X), R._e(V.X, V.Y))], rounds=3)"
        ".solve([R.s(1)[1.0], R.e(1, 2), R.e(2, 1)])"
    )


class NoFixedPoint(EdgewiseError):
    """A minimum that falls around a cycle has no fixed point, nor has a maximum that rises."""

    code = "no-fixed-point"
    example = (
        "Program([(R.d(V.Y) <= (R.d(V.X), R.e(V.X, V.Y))) | [F.min_agg], R.d/1 | [F.min]])"
        ".solve([R.d(0)[0.0], R.e(0, 1)[1.0], R.e(1, 0)[-2.0]])"
    )
    instead = (
        "Program([(R.d(V.Y) <= (R.d(V.X), R.e(V.X, V.Y))) | [F.min_agg], R.d/1 | [F.min]])"
        ".solve([R.d(0)[0.0], R.e(0, 1)[1.0], R.e(1, 0)[2.0]])"
    )


class FactAndRule(EdgewiseError):
    """An atom is given as a fact or derived by rules; with both, neither would be its value."""

    code = "fact-and-rule"
    example = "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[2.0], R.h(1)[3.0]])"
    instead = "Program([R.h(V.X) <= R.a(V.X), R.h/1 | [F.max]]).solve([R.a(1)[2.0], R.h(1)[3.0]])"


class TooManyGroundings(EdgewiseError):
    """Arithmetic can count for ever and joins multiply: evaluation stops before memory does."""

    code = "too-many-groundings"
    example = "Program([R.h(V.T) <= (R.h(V.S), R.special.next(V.S, V.T))]).solve([R.h(0)[1.0]])"
    instead = (
        "Program([R.h(V.T) <= (R.x(V.T), R.h(V.S), R.special.next(V.S, V.T))])"
        ".solve([R.h(0)[1.0], R.x(1)[2.0]])"
    )


class NotDerivable(EdgewiseError, KeyError):
    """Absent is absent: an atom that no fact states and no rule derives has no value, not 0."""

    code = "not-derivable"
    example = "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[2.0]])[R.h(2)]"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[2.0]])[R.h(1)]"


class BadQuery(EdgewiseError):
    """A solution is queried with an atom."""

    code = "bad-query"
    example = 'Program([R.h <= R.a]).solve([R.a[1.0]])["h"]'
    instead = "Program([R.h <= R.a]).solve([R.a[1.0]])[R.h]"


def is_extreme(
    line: nodes.Line | None,
    rules: Iterable[nodes.Rule] = (),
    part: Iterable[str] = (),
    relation: str = "",
    default: nodes.Function = SUM,
) -> bool:
    """Whether a relation's line and all its rules that recurse in `part` are minima or maxima."""
    if line is None or not definition(combination(line.functions)).is_extreme:
        return False
    return all(
        definition(aggregation_of(rule, default)).is_extreme
        for rule in rules
        if rule.head.relation == relation and needs([rule], values_only=True)[relation] & set(part)
    )


def fact_and_rule(relation: str, key: tuple[nodes.Constant, ...], rule: nodes.Rule) -> FactAndRule:
    return FactAndRule(
        f"`{nodes.Atom(relation, key)!r}` is both a fact and derived by a rule",
        rule.place,
        "remove one of them, or say how to combine them: "
        f"`{nodes.Atom(relation)!r}/{len(key)} | [F.max]`",
    )


def cyclic_recursion(part: Iterable[str], rules: Iterable[nodes.Rule]) -> CyclicRecursion:
    names = sorted(part)
    rule = next(
        rule
        for rule in rules
        if rule.head.relation in names
        and needs([rule], values_only=True)[rule.head.relation] & set(names)
    )
    return CyclicRecursion(
        f"the values of {' and '.join(f'`{name}`' for name in names)} depend on themselves "
        "around a cycle of this data",
        rule.place,
        "use min or max in every aggregation and in the relation's line, or a number of rounds: "
        "`Program(..., rounds=3)`; if it only counts whether an atom holds, hide it: "
        f"`{_recursive_atom(rule, names)!r}`",
    )


def _recursive_atom(rule: nodes.Rule, names: Collection[str]) -> nodes.Atom:
    """The atom of a rule that reads one of some relations, hidden."""
    found = next(a for a in atoms(rule.body) if isinstance(a, nodes.Atom) and a.relation in names)
    return replace(found, hidden=True, weight=None)


def endless(rule: nodes.Rule) -> TooManyGroundings:
    return TooManyGroundings(
        f"the rule for `{rule.head.relation}` derives more than {LIMIT:,} atoms, does not end in "
        f"{ROUNDS:,} rounds, or counts beyond all integers of data and rules",
        rule.place,
        "add an atom with finitely many facts that binds the variable that grows",
    )


def call_raised(
    atom: nodes.SpecialAtom, keys: Sequence[nodes.Constant | None], problem: Exception
) -> CallFailed:
    return CallFailed(
        f"`{atom!r}` raised {type(problem).__name__} on {tuple(keys)}: {problem}",
        atom.place,
        "the function must take every combination of keys that the rule gives it",
    )


def not_a_key(
    atom: nodes.SpecialAtom, keys: Sequence[nodes.Constant | None], result: Any
) -> CallFailed:
    return CallFailed(
        f"`{atom!r}` gave {result!r} on {tuple(keys)}, which is not a key",
        atom.place,
        "return an integer, a string, or None where it does not hold",
    )


def not_a_scalar(selection: str, rule: nodes.Rule) -> ShapeMismatch:
    """What decides which atoms hold is one number for each."""
    return ShapeMismatch(
        f"`{written_for(selection)}` chooses by values that are not scalars",
        rule.place,
        "reduce the values to scalars first",
    )
