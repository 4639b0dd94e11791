"""The order in which a body is joined: the one that makes the fewest partial groundings."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgewise.ground.body import Body
from edgewise.ground.index import Grid, Index
from edgewise.language import nodes
from edgewise.language.terms import variables

IndexOf = Callable[[nodes.Atom], Index]
# of one row: compared on a grid, looked up among keys, or repeated for each match
COMPARE, LOOK_UP, EXPAND = 1, 4, 8


def order(body: Body, first: int | None, listed: frozenset[int], index: IndexOf) -> list[int]:
    """The literals of a body in the order to join them.

    Conditions come as soon as they are bound. Of the orders that begin with one atom and go on with
    the atom that has the fewest matches, the cheapest.
    """
    if first is not None or len(body.positive) < 2:
        return _Chain(body, listed, index).run(first)[1]
    found = [_Chain(body, listed, index).run(at) for at in body.positive]
    return min(found, key=lambda pair: pair[0])[1]


class _Chain:
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
        terms = literal.keys if isinstance(literal, nodes.Weight) else literal.terms
        self.known |= {v.name for v in variables(terms)}

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
