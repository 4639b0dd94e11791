"""Conditions on data: the attributes of tokens on each side of a pair, and tests on both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Index
from edgewise.ground.joins.body import SAMPLE, Body
from edgewise.ground.joins.join import Bindings, Budget
from edgewise.ground.masks.leaves import Equal
from edgewise.ground.masks.split import Sides, names_of
from edgewise.ground.masks.tokens import Attributes, TokenAxis
from edgewise.language import nodes
from edgewise.language.statements import is_selection
from edgewise.language.terms import variables
from edgewise.layouts.ragged import Bools, Ints, distinct_rows
from edgewise.plan.mask import Condition
from edgewise.plan.value_ranks import LATER, SIDES

QUERIES, KEYS = "@queries", "@keys"  # the relations of all tokens of each axis


@dataclass(frozen=True, eq=False)
class Pairs:
    """The two axes of a mask, and the relations that conditions read."""

    query: str
    key: str
    queries: TokenAxis
    keys: TokenAxis
    data: Grounder

    @cached_property
    def grounder(self) -> Grounder:
        axes: dict[str, Index] = {QUERIES: self.queries.index, KEYS: self.keys.index}
        return replace(self.data, relations=self.data.relations | axes, joins={}, grounds={})

    @property
    def shape(self) -> tuple[int, int]:
        return self.queries.count, self.keys.count

    def of_query(self, conditions: Sequence[Condition], names: Sequence[str]) -> Attributes:
        """The values of variables for each query under conditions on it."""
        return self._side(self.queries, QUERIES, self.query, conditions, names)

    def of_key(self, conditions: Sequence[Condition], names: Sequence[str]) -> Attributes:
        return self._side(self.keys, KEYS, self.key, conditions, names)

    def _side(
        self,
        tokens: TokenAxis,
        relation: str,
        name: str,
        conditions: Sequence[Condition],
        names: Sequence[str],
    ) -> Attributes:
        own = (*tokens.terms, nodes.Variable(name))
        others = tuple(nodes.Variable(n) for n in names if n != name)
        index = self._heads((nodes.Atom(relation, own, hidden=True), *conditions), (*own, *others))
        columns = [index.column(p).numpy() for p in range(index.arity)]
        sample = columns[0] if tokens.sample is not None else None
        token = tokens.found(sample, columns[len(own) - 1])
        found = {v.name: c for v, c in zip(others, columns[len(own) :], strict=True)}
        if name in names:
            found[name] = columns[len(own) - 1]
        return Attributes(token, found, tokens.count)

    def _heads(self, body: tuple[Condition, ...], terms: tuple[nodes.Variable, ...]) -> Index:
        rule = nodes.Rule(nodes.Atom("@mask", terms), body)
        return self.grounder.ground(Body(rule, self.grounder.domains)).heads

    def holds(self, conditions: Sequence[Condition]) -> Ints | None:
        """Whether conditions on neither query nor key hold: in which samples, if ragged."""
        terms = self.queries.terms
        bound = [nodes.Atom(QUERIES, (*terms, nodes.Variable("@any")), hidden=True)]
        index = self._heads((*(bound if terms else ()), *conditions), terms)
        if not terms:
            return None if index.rows else np.zeros(0, np.int64)
        return index.column(0).numpy()

    def joined(self, conditions: Sequence[Condition]) -> tuple[Ints, Ints]:
        """All pairs for which conditions hold, by a join."""
        terms = self.queries.terms
        i, j = nodes.Variable(self.query), nodes.Variable(self.key)
        axes = (
            nodes.Atom(QUERIES, (*terms, i), hidden=True),
            nodes.Atom(KEYS, (*terms, j), hidden=True),
        )
        index = self._heads((*conditions, *axes), (*terms, i, j))
        columns = [index.column(p).numpy() for p in range(index.arity)]
        sample = columns[0] if terms else None
        return self.queries.found(sample, columns[-2]), self.keys.found(sample, columns[-1])

    def tested(self, sides: Sides, columns: dict[str, Ints]) -> Bools:
        """Which rows of columns of both sides meet all tests."""
        body = Body(
            nodes.Rule(nodes.Atom("@mask"), (*sides.query, *sides.key, *sides.tests)),
            self.grounder.domains,
        )
        first = len(sides.query) + len(sides.key)
        waiting = list(range(first, first + len(sides.tests)))
        count = len(next(iter(columns.values())))
        known = {name: torch.from_numpy(column) for name, column in columns.items()}
        found = Bindings(count, known | {"@row": torch.arange(count)})
        budget = Budget(count)
        while waiting:
            at = min(waiting, key=lambda k: body.cost(k, set(found.columns)))
            found = self.grounder.extended(body, at, found, budget)
            waiting.remove(at)
        holds = np.zeros(count, bool)
        holds[found.columns["@row"].numpy()] = True
        return holds


def attributes_in(sides: Sides, side: Sequence[Condition], own: str) -> tuple[str, ...]:
    """The variables that tests read of one side, without those shared; the sample is of both."""
    read = names_of(sides.tests) & (names_of(side) | {own, SAMPLE.name})
    return tuple(sorted(read - set(sides.shared)))


def codes_of(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Rows of two tables as numbers: equal rows have equal ones."""
    codes = distinct_rows(np.concatenate([left, right]))[1]
    return codes[: len(left)], codes[len(left) :]


def equal(name: str, left: Attributes, right: Attributes, shared: tuple[str, ...]) -> Equal:
    """TokenAxis with the same values of shared variables, one value each."""
    codes, other = codes_of(left.tuples(shared), right.tuples(shared))
    return Equal(name, left.by_token(codes), right.by_token(other))


def shown(conditions: Sequence[Condition]) -> str:
    """The relations, comparisons and predicates of conditions, each once.

    >>> from edgewise.language import R, V
    >>> shown([R._turn(V.I, V.A), R._turn(V.J, V.B), R.special.neq(V.A, V.B)])
    'turn, @neq'
    """
    return ", ".join(dict.fromkeys(name for item in conditions for name in _shown(item)))


def _shown(item: Condition) -> list[str]:
    if isinstance(item, nodes.Atom):
        name = item.relation
        for side in (LATER, *SIDES):  # the longer first
            name = name.removesuffix(side) if is_selection(name) else name
        return [name.partition(": ")[2] if is_selection(name) else name]
    names = [v.name for v in variables(item.terms)]
    if names and all(name.startswith("@") for name in names):
        return []  # of ranks, in the place of values that are compared
    if isinstance(item, nodes.PatternAtom):
        return [repr(item.pattern)]
    return [f"@{item.name}" if item.formula is None else repr(item)]
