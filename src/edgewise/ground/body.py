"""The body of a rule as a join reads it: its literals, and the order to join them in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from edgewise.ground.index import Grid, Index
from edgewise.language import nodes
from edgewise.language.program import Domain
from edgewise.language.specials import computes
from edgewise.language.statements import assigned_variables, atoms, weights
from edgewise.language.terms import variables

SAMPLE = nodes.Variable("@sample")  # the first term of what differs between samples
SAMPLES = "@samples"  # the relation that holds for every sample
Literal = nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom | nodes.Weight
IndexOf = Callable[[nodes.Atom], Index]
# of one row: compared on a grid, looked up among keys, or repeated for each match
COMPARE, LOOK_UP, EXPAND = 1, 4, 8
MAX_STARTS = 16  # orders that are compared: each takes quadratic time


def terms_of(literal: Literal) -> tuple[nodes.Term, ...]:
    return literal.keys if isinstance(literal, nodes.Weight) else literal.terms


@dataclass(frozen=True)
class Body:
    """The literals of one rule: its atoms, then its families of weights."""

    rule: nodes.Rule
    domains: Mapping[str, Domain]

    @cached_property
    def literals(self) -> tuple[Literal, ...]:
        return (*atoms(self.rule), *(weight for weight in weights(self.rule) if weight.keys))

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

    def cost(self, literal: Literal, known: set[str], listed: bool = False) -> tuple[int, int]:
        """How early a literal can be joined once `known` is bound: (kind, detail), least first.

        `listed` patterns bind their variables, as atoms do.
        """
        free = {v.name for v in variables(terms_of(literal))} - known
        match literal:
            case nodes.Weight():
                return (4, len(free))  # last: the other literals decide what it ranges over
            case nodes.PatternAtom() if listed and free:
                return (1, len(free))
            case nodes.Atom(negated=False):
                return (2, len(free) - len(literal.terms)) if free else (0, 0)
            case nodes.SpecialAtom(negated=False) if len(free) == 1:
                return _special_cost(literal, free)
        return (0, 1) if not free else (5, len(free))


def _special_cost(atom: nodes.SpecialAtom, free: set[str]) -> tuple[int, int]:
    """The cost of a predicate with one unbound variable, which some can compute."""
    places = [
        p for p, t in enumerate(atom.terms) if isinstance(t, nodes.Variable) and t.name in free
    ]
    if len(places) > 1 or places[0] not in computes(atom):
        return (5, 1)
    # a factor of 0 leaves the other one open, so `mul` lets atoms bind it first
    return (3 if atom.name == "mul" else 1, 0)


def join_order(body: Body, first: int | None, listed: frozenset[int], index: IndexOf) -> list[int]:
    """The literals of a body in the order to join them.

    Conditions come as soon as they are bound. Of the orders that begin with one atom and go on with
    the atom that has the fewest matches, the cheapest.
    """
    if first is not None or len(body.positive) < 2:
        return _JoinOrder(body, listed, index).run(first)[1]
    starts = list(body.positive)
    if len(starts) > MAX_STARTS:
        starts = sorted(starts, key=lambda at: index(body.positive[at]).rows)[:MAX_STARTS]
    found = [_JoinOrder(body, listed, index).run(at) for at in starts]
    return min(found, key=lambda pair: pair[0])[1]


class _JoinOrder:
    """One order, with what it is expected to cost."""

    def __init__(self, body: Body, listed: frozenset[int], index: IndexOf) -> None:
        self.body = body
        self.listed = listed
        self.index = index
        self.known: set[str] = set()
        self.rows = 1.0
        self.cost = 0.0

    def run(self, first: int | None) -> tuple[float, list[int]]:
        waiting = list(range(len(self.body.literals)))
        steps: list[int] = []
        while waiting:
            at = first if first is not None and not steps else min(waiting, key=self._rank)
            self._take(at)
            waiting.remove(at)
            steps.append(at)
        return self.cost, steps

    def _rank(self, at: int) -> tuple[float, ...]:
        literal = self.body.literals[at]
        kind, detail = self.body.cost(literal, self.known, at in self.listed)
        if isinstance(literal, nodes.Atom) and not literal.negated and kind == 2:
            return (kind, self._matches(literal), at)
        return (kind, detail, at)

    def _take(self, at: int) -> None:
        literal = self.body.literals[at]
        if isinstance(literal, nodes.Atom) and not literal.negated:
            index = self.index(literal)
            free = self._free(literal)
            if not free or not self.known:
                self.rows *= 1 if not free else index.rows
                self.cost += self.rows * (COMPARE if isinstance(index, Grid) else LOOK_UP)
            else:
                self.rows *= self._matches(literal)
                self.cost += self.rows * EXPAND
            self.cost += 0 if isinstance(index, Grid) else index.rows
        self.known |= {v.name for v in variables(terms_of(literal))}

    def _free(self, literal: nodes.Atom) -> set[str]:
        return {v.name for v in variables(literal.terms)} - self.known

    def _matches(self, literal: nodes.Atom) -> float:
        """The rows of an atom for one value of what is known, as if they were spread evenly."""
        index = self.index(literal)
        bound = [
            p
            for p, t in enumerate(literal.terms)
            if not isinstance(t, nodes.Variable) or t.name in self.known
        ]
        keys = math.prod(index.spans[p] for p in bound)
        return index.rows / max(min(keys, index.rows), 1)
