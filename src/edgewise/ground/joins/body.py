"""The body of a rule as a join reads it: its literals, and the order to join them in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgewise.ground.index import Grid, Index
from edgewise.ground.joins.key_ranges import Comparison, KeyRange, comparisons, key_range
from edgewise.language import nodes
from edgewise.language.defaults import Domain
from edgewise.language.specials import computes
from edgewise.language.statements import assigned_variables, atoms, remembered, weights
from edgewise.language.terms import variables
from edgewise.layouts.recorded import least, most

SAMPLE = nodes.Variable("@sample")  # the first term of what differs between samples
SAMPLES = "@samples"  # the relation that holds for every sample
OWN = "@own"  # the relation that holds for the nodes of a rank: no axis ends with it
Literal = nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom | nodes.Weight
IndexOf = Callable[[int], Index]  # of the atom at a place among the literals
# of one row: compared on a grid, looked up among keys, or repeated for each match
COMPARE, LOOK_UP, EXPAND = 1, 4, 8
NARROWER = (1, 2, 64)  # times fewer rows in a range without, with one and with two ends
MAX_STARTS = 16  # orders that are compared: each takes quadratic time


def terms_of(literal: Literal) -> tuple[nodes.Term, ...]:
    return literal.keys if isinstance(literal, nodes.Weight) else literal.terms


def is_read(literal: Literal) -> bool:
    """Whether groundings have a row of what a literal holds."""
    return isinstance(literal, nodes.Weight) or (
        isinstance(literal, nodes.Atom) and literal.carries_value
    )


def _literals(rule: nodes.Rule) -> tuple[Literal, ...]:
    return (*atoms(rule), *(weight for weight in weights(rule) if weight.keys))


def _names(rule: nodes.Rule) -> Iterator[tuple[str, ...]]:
    literals = remembered(rule, _literals)
    return (tuple(v.name for v in variables(terms_of(literal))) for literal in literals)


def _comparisons(rule: nodes.Rule) -> Iterator[tuple[str, list[Comparison]]]:
    return iter(comparisons(remembered(rule, _literals)).items())


def _keys(rule: nodes.Rule) -> Iterator[Any]:
    for literal in remembered(rule, _literals):
        match literal:
            case nodes.Weight(keys=keys):
                yield plain_terms(keys)
            case nodes.Atom(terms=terms):
                yield plain_terms(terms), literal.negated, literal.carries_value
            case _:
                yield literal


def plain_terms(terms: Iterable[nodes.Term]) -> tuple[Any, ...]:
    """Terms of which tables are quick to compare and to hash: a variable is `(name,)`."""
    return tuple((term.name,) if isinstance(term, nodes.Variable) else term for term in terms)


@dataclass(frozen=True)
class Body:
    """The literals of one rule: its atoms, then its families of weights."""

    rule: nodes.Rule
    domains: Mapping[str, Domain]

    @cached_property
    def literals(self) -> tuple[Literal, ...]:
        return remembered(self.rule, _literals)

    @cached_property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The variables of each literal."""
        return remembered(self.rule, _names)

    @property
    def keys(self) -> tuple[Any, ...]:
        """What each literal says about keys, whatever its weight and the name of its relation."""
        return remembered(self.rule, _keys)

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """The variables that a grounding assigns, in the order that groundings are sorted by."""
        return assigned_variables(self.rule)

    @cached_property
    def positive(self) -> dict[int, nodes.Atom]:
        """The atoms that bind variables, by their places among the literals."""
        return {
            at: literal
            for at, literal in enumerate(self.literals)
            if isinstance(literal, nodes.Atom) and not literal.negated
        }

    @cached_property
    def comparisons(self) -> dict[str, list[Comparison]]:
        return dict(remembered(self.rule, _comparisons))

    def range_of(self, at: int, known: set[str]) -> KeyRange | None:
        """The range of keys that a variable of literal `at` has once others are known; the
        narrowest if it is of several."""
        if not self.comparisons:
            return None
        names = dict.fromkeys(name for name in self.names[at] if name not in known)
        found = [key_range(name, self.comparisons, known) for name in names]
        return max((one for one in found if one is not None), key=_sides, default=None)

    def cost(self, at: int, known: set[str], listed: bool = False) -> tuple[int, int]:
        """How early literal `at` can be joined once `known` is bound: (kind, detail), least first.

        `listed` patterns bind their variables, as atoms do.
        """
        literal, free = self.literals[at], set(self.names[at]) - known
        match literal:
            case nodes.Weight():
                return (4, len(free))  # last: the other literals decide what it ranges over
            case nodes.PatternAtom() if listed and free:
                return (2, len(free) - len(literal.terms))
            case nodes.Atom(negated=False):
                return (2, len(free) - len(literal.terms)) if free else (0, 0)
            case nodes.SpecialAtom(negated=False) if len(free) == 1:
                return _special_cost(literal, free)
        return (0, 1) if not free else (5, len(free))


def _sides(found: KeyRange) -> int:
    return bool(found.lows) + bool(found.highs)


def _special_cost(atom: nodes.SpecialAtom, free: set[str]) -> tuple[int, int]:
    """The cost of a predicate with one unbound variable, which some can compute."""
    places = [
        p for p, t in enumerate(atom.terms) if isinstance(t, nodes.Variable) and t.name in free
    ]
    if len(places) > 1 or places[0] not in computes(atom):
        return (5, 1)
    # a factor of 0 leaves the other one open, so `mul` lets atoms bind it first
    return (3 if atom.name == "mul" else 1, 0)


def join_order(
    body: Body, first: int | None, pairs: Mapping[int, int], index: IndexOf
) -> tuple[float, list[int]]:
    """The literals of a body in the order to join them, and what that is expected to cost.

    Conditions come as soon as they are bound. Of the orders that begin with one atom and go on with
    the atom that has the fewest matches, the cheapest. `pairs` are the numbers of pairs of patterns
    that may be listed: all are, or none.
    """
    choices = [pairs, {}] if pairs else [{}]
    found = [
        _JoinOrder(body, listed, index).run(at)
        for listed in choices
        for at in _starts(body, first, listed, index)
    ]
    return min(found, key=lambda pair: pair[0])


@dataclass(frozen=True)
class JoinSide:
    """Some literals of a body in the order to join them: the expected cost, and rows at the end."""

    order: tuple[int, ...]
    cost: float
    rows: float


def side_of(body: Body, literals: Iterable[int], lead: str, index: IndexOf) -> JoinSide | None:
    """Some literals joined to all keys of one variable; None if two have no variable in common."""
    literals = list(literals)
    spans = [
        index(at).spans[p]
        for at in literals
        if at in body.positive
        for p, term in enumerate(body.positive[at].terms)
        if isinstance(term, nodes.Variable) and term.name == lead
    ]
    made = _JoinOrder(body, {}, index)
    made.known, made.lengths, made.rows = {lead}, {lead: min(spans)}, float(min(spans))
    order = made.extend(literals)
    known = {lead}
    for at in order:
        if at in body.positive and known.isdisjoint(body.names[at]):
            return None
        known.update(body.names[at])
    return JoinSide(tuple(order), made.cost, made.rows)


def ordered(
    body: Body, literals: Iterable[int], known: set[str], index: IndexOf
) -> tuple[int, ...]:
    """Some literals in the order to join them after others."""
    made = _JoinOrder(body, {}, index)
    made.known = set(known)
    return tuple(made.extend(literals))


def _starts(
    body: Body, first: int | None, listed: Mapping[int, int], index: IndexOf
) -> list[int | None]:
    starts = list(body.positive)
    if first is not None or len(starts) < 2:
        return [first]
    if len(starts) > MAX_STARTS:
        starts = sorted(starts, key=lambda at: index(at).rows)[:MAX_STARTS]
    return [*starts, *listed]


class _JoinOrder:
    """One order, with what it is expected to cost."""

    def __init__(self, body: Body, listed: Mapping[int, int], index: IndexOf) -> None:
        self.body = body
        self.listed = listed
        self.index = index
        self.known: set[str] = set()
        self.lengths: dict[str, int] = {}  # keys that a bound variable runs over, at most
        self.rows = 1.0
        self.cost = float(sum(listed.values()))

    def run(self, first: int | None) -> tuple[float, list[int]]:
        waiting = list(range(len(self.body.literals)))
        steps: list[int] = []
        if first is not None:
            self._take(first)
            waiting.remove(first)
            steps.append(first)
        steps += self.extend(waiting)
        return self.cost + self._sorting(steps[0]) if steps else self.cost, steps

    def extend(self, literals: Iterable[int]) -> list[int]:
        """The order of literals after those that are taken."""
        waiting, steps = list(literals), []
        while waiting:
            at = waiting[0] if len(waiting) == 1 else min(waiting, key=self._rank)
            self._take(at)
            waiting.remove(at)
            steps.append(at)
        return steps

    def _sorting(self, first: int) -> float:
        """What it takes to sort groundings that do not come in the order of their first key."""
        names = [v.name for v in variables(terms_of(self.body.literals[first])[:1])]
        return 0.0 if names == list(self.body.visible[:1]) else self.rows * EXPAND

    def _binds(self, at: int) -> bool:
        literal = self.body.literals[at]
        return at in self.listed or (isinstance(literal, nodes.Atom) and not literal.negated)

    def _rank(self, at: int) -> tuple[float, ...]:
        kind, detail = self.body.cost(at, self.known, at in self.listed)
        if kind == 2 and self._binds(at):
            return (kind, self._matches(at), at)
        return (kind, detail, at)

    def _take(self, at: int) -> None:
        literal = self.body.literals[at]
        if self._binds(at):
            rows, sizes = self._size(at)
            grid = isinstance(literal, nodes.Atom) and isinstance(self.index(at), Grid)
            is_bound = self.known.issuperset(self.body.names[at])
            self.rows *= 1 if is_bound else self._matches(at)
            read_once = COMPARE if grid else LOOK_UP
            self.cost += self.rows * (read_once if is_bound or not self.known else EXPAND)
            self.cost += 0 if grid else rows
            for term, size in zip(terms_of(literal), sizes, strict=True):
                if isinstance(term, nodes.Variable):
                    self.lengths[term.name] = least(size, self.lengths.get(term.name, size))
        self.known.update(self.body.names[at])

    def _size(self, at: int) -> tuple[int, tuple[int, ...]]:
        """How many rows an atom or a listed pattern has, and the spans of its columns."""
        literal = self.body.literals[at]
        if isinstance(literal, nodes.Atom):
            index = self.index(at)
            return index.rows, index.spans
        each = math.isqrt(self.listed[at]) + 1
        names = [t.name if isinstance(t, nodes.Variable) else "" for t in terms_of(literal)]
        return self.listed[at], tuple(self.lengths.get(name, each) for name in names)

    def _matches(self, at: int) -> float:
        """The rows of an atom for one value of what is known, as if they were spread evenly."""
        rows, spans = self._size(at)
        bound = [
            p
            for p, t in enumerate(terms_of(self.body.literals[at]))
            if not isinstance(t, nodes.Variable) or t.name in self.known
        ]
        if not bound and self.known:
            ranged = self.body.range_of(at, self.known)
            return rows if ranged is None else rows / NARROWER[_sides(ranged)]
        keys = math.prod(spans[p] for p in bound)
        return rows / most(least(keys, rows), 1)
