"""Tests of a pair as comparisons of integer expressions over the attributes of its two tokens.

Predicates that compute a variable are put in its place: `sub(I, J, D), leq(D, A)` is `I - J <= A`,
with `I - J >= 0` beside it, as `sub` is of natural numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewise.graphs import blocks, strided
from edgewise.graphs.algebra import complement
from edgewise.ground.masks.ranges import difference_in
from edgewise.language import nodes
from edgewise.language.term_expressions import Formula, solved
from edgewise.language.term_expressions import Tree as FormulaTree
from edgewise.plan.mask import Condition

SIGNS = {"leq": "<=", "lt": "<", "geq": ">=", "gt": ">"}
NEGATED = {"<=": ">", "<": ">=", ">=": "<", ">": "<=", "==": "!=", "!=": "=="}
Tree = Any  # an integer, ("variable", name), or an operator with its operands


class NotSeparate(Exception):
    """Internal: a test is not a comparison of one number of each token."""


@dataclass(frozen=True)
class Compared:
    """left ∘ right, of integers."""

    sign: str
    left: Tree
    right: Tree


@dataclass
class TestReader:
    """Reads tests over known variables; others are computed from these."""

    known: frozenset[str]
    found: list[Compared] = field(default_factory=list)
    naturals: set[str] = field(default_factory=set)  # must be numbers from 0 on
    integers: set[str] = field(default_factory=set)  # of negated tests, which hold for strings
    numbers: set[str] = field(default_factory=set)  # the same, of natural numbers
    computed: dict[str, Tree] = field(default_factory=dict)

    def read(self, tests: Sequence[Condition]) -> None:
        waiting = list(tests)
        while waiting:
            ready = [test for test in waiting if self.is_read(test)]
            if not ready:
                raise NotSeparate
            waiting = [test for test in waiting if test not in ready]

    def is_read(self, test: Condition) -> bool:
        """Add one test; False while two of its variables are not known."""
        if isinstance(test, nodes.PatternAtom):
            return self._pattern(test)
        if not isinstance(test, nodes.SpecialAtom):
            raise NotSeparate
        terms = [self._term(term) for term in test.terms]
        missing = [at for at, term in enumerate(terms) if term is None]
        if len(missing) > 1:
            return False
        if test.formula is not None:
            self._formula(test, test.formula, terms, missing)
        elif test.name in ("add", "sub", "next") and not test.negated:
            self._sum(test, terms)
        elif test.name in SIGNS and not missing:
            self._compare(test, SIGNS[test.name], terms[0], terms[1])
        else:  # of `eq` and `neq`, which strings are or are not, too
            raise NotSeparate
        return True

    def _pattern(self, test: nodes.PatternAtom) -> bool:
        """Patterns that are one comparison, of natural numbers."""
        a, b = (self._term(term) for term in test.terms[-2:])
        if a is None or b is None:
            return False
        match test.pattern, test.negated:
            case strided(), False:
                found = Compared("==", ("%", minus(a, b), test.pattern.step), 0)
            case complement(pattern=strided() as inner), False:
                found = Compared("!=", ("%", minus(a, b), inner.step), 0)
            case blocks(), False:
                size = test.pattern.size
                found = Compared("==", ("//", a, size), ("//", b, size))
            case complement(pattern=inner), False:
                found = _outside(a, b, difference_in(inner))
            case inner, True if is_name(a) and is_name(b):  # which holds for other keys, too
                self.numbers |= {a[1], b[1]}
                found = _outside(a, b, difference_in(inner))
            case _:
                raise NotSeparate
        for end in (a, b):
            if is_name(end):
                self.naturals.add(end[1])
            else:
                self.found.append(Compared(">=", end, 0))
        self.found.append(found)
        return True

    def _term(self, term: nodes.Term) -> Tree:
        """None for a variable that is not known."""
        if isinstance(term, int):
            return term
        if not isinstance(term, nodes.Variable):
            raise NotSeparate
        if term.name in self.computed:
            return self.computed[term.name]
        return ("variable", term.name) if term.name in self.known else None

    def _compare(self, test: nodes.SpecialAtom, sign: str, left: Tree, right: Tree) -> None:
        if test.negated:
            if "//" in repr((left, right)) or "%" in repr((left, right)):  # by 0, it holds
                raise NotSeparate
            self.integers |= names_in(left) | names_in(right)
            sign = NEGATED[sign]
        self.found.append(Compared(sign, left, right))

    def _formula(
        self, test: nodes.SpecialAtom, formula: Formula, terms: list[Tree], missing: list[int]
    ) -> None:
        if not missing:
            sides = (placed(side, terms) for side in (formula.left, formula.right))
            self._compare(test, formula.sign, *sides)
            return
        variable = test.terms[missing[0]]
        if missing[0] not in formula.computes or test.negated:
            raise NotSeparate
        assert isinstance(variable, nodes.Variable)
        found: _Sum = solved(formula, missing[0], lambda tree: _Sum(placed(tree, terms)))
        self.computed[variable.name] = found.tree

    def _sum(self, test: nodes.SpecialAtom, terms: list[Tree]) -> None:
        """x + y = z of natural numbers: `add(x, y, z)`, `sub(z, y, x)`, `next(x, z)` with y = 1."""
        names: list[nodes.Term] = list(test.terms)
        if test.name == "next":
            terms, names = [terms[0], 1, terms[1]], [names[0], 1, names[1]]
        if test.name == "sub":
            terms, names = terms[::-1], names[::-1]
        x, y, z = terms
        if any(isinstance(term, int) and term < 0 for term in terms):
            raise NotSeparate
        self.naturals |= {term[1] for term in terms if isinstance(term, tuple) and is_name(term)}
        if None not in terms:
            self.found.append(Compared("==", ("+", x, y), z))
            return
        at = terms.index(None)
        value = ("+", x, y) if at == 2 else minus(z, x if at == 1 else y)
        variable = names[at]
        assert isinstance(variable, nodes.Variable)
        self.computed[variable.name] = value
        if at != 2:
            self.found.append(Compared(">=", value, 0))


def _outside(a: Tree, b: Tree, ends: tuple[float, float] | None) -> Compared:
    """a − b is not between two numbers."""
    if ends is None:
        raise NotSeparate
    low, high = ends
    if low == -math.inf and high == math.inf:
        raise NotSeparate
    if low == -math.inf or high == math.inf:
        sign, end = ("<", low) if high == math.inf else (">", high)
        return Compared(sign, minus(a, b), int(end))
    middle = minus(times(2, minus(a, b)), int(low + high))
    return Compared(">", ("abs", middle), int(high - low))


@dataclass(frozen=True)
class _Sum:
    """A tree that can be added to."""

    tree: Tree

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(("+", self.tree, other.tree))

    def __sub__(self, other: _Sum) -> _Sum:
        return _Sum(minus(self.tree, other.tree))


def placed(tree: FormulaTree, terms: Sequence[Tree]) -> Tree:
    """A tree of a formula with its terms in their places."""
    if isinstance(tree, int):
        return tree
    name, *operands = tree
    if name == "term":
        return terms[operands[0]]  # type: ignore[index]
    return (name, *(placed(operand, terms) for operand in operands))


def is_name(tree: Tree) -> bool:
    return isinstance(tree, tuple) and tree[0] == "variable"


def names_in(tree: Tree) -> set[str]:
    """The variables of a tree.

    >>> sorted(names_in(minus(("variable", "I"), times(2, ("variable", "A")))))
    ['A', 'I']
    """
    if isinstance(tree, int):
        return set()
    if is_name(tree):
        return {tree[1]}
    return set().union(*map(names_in, tree[1:]))


def minus(left: Tree, right: Tree) -> Tree:
    return left if isinstance(right, int) and right == 0 else ("-", left, right)


def times(factor: int, tree: Tree) -> Tree:
    return tree if factor == 1 else ("*", factor, tree)
