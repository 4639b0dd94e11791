"""The body of a rule as a join reads it: its literals, and what must be bound before each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from edgewise.language import nodes
from edgewise.language.program import Domain
from edgewise.language.specials import SPECIALS
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import variables

SAMPLE = nodes.Variable("@sample")  # the first term of what differs between samples
SAMPLES = "@samples"  # the relation that holds for every sample
Literal = nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom | nodes.Weight


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
        """The variables that a grounding assigns: the rule head's, then those that carry values."""
        carrying = [
            term
            for literal in self.literals
            if isinstance(literal, nodes.Weight) or literal.carries_value
            for term in terms_of(literal)
        ]
        names = [v.name for v in variables([*self.rule.head.terms, *carrying])]
        return tuple(dict.fromkeys(names))

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
    arity, computes = len(atom.terms), SPECIALS[atom.name].computes
    places = [
        p for p, t in enumerate(atom.terms) if isinstance(t, nodes.Variable) and t.name in free
    ]
    if len(places) > 1 or not {places[0], places[0] - arity} & set(computes):
        return (5, 1)
    # a factor of 0 leaves the other one open, so `mul` lets atoms bind it first
    return (3 if atom.name == "mul" else 1, 0)
