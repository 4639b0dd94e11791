"""A rule's score, lowered to the tree that kernels compile: a function of S, I, J and reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add, mul

import edgewise.scores
from edgewise.language import functions, nodes
from edgewise.language.statements import atoms, combination
from edgewise.language.terms import variables
from edgewise.plan.nodes import Additive, Dot, LoweredScore
from edgewise.plan.score import (
    NotASum,
    Term,
    constant,
    counts_places,
    dot_of,
    is_scalar,
    names_in,
    terms_of,
    times,
)
from edgewise.scores import I, J, S, Score, maximum, minimum
from edgewise.scores.nodes import ZERO, Entry, PairValue
from edgewise.scores.score import as_score

OF_PLACES: dict[str, Callable[[Score, Score], Score]] = {
    "add_eval": lambda a, b: a + b,
    "sub_eval": lambda a, b: a - b,
    "mul_eval": lambda a, b: a * b,
    "max_eval": maximum,
    "min_eval": minimum,
}


class NotLowered(Exception):
    """Internal: why a score is not such a tree; it may still be dot products and biases."""


class OtherPlaces(Exception):
    """Internal: a score counts with variables that are not its query and its key."""


@dataclass(frozen=True)
class Names:
    """The variables of a score: its key's, its query's, and those `computed` from the two."""

    key: str
    query: str
    computed: frozenset[str] = frozenset()

    def places(self, item: nodes.Expression) -> frozenset[str]:
        return names_in(item) & {self.key, self.query}


def lower_score(rule: nodes.Rule, names: Names) -> LoweredScore:
    """The score of a rule.

    >>> from edgewise.language import F, R, V
    >>> body = (F.tanh(R.k(V.J).T @ R.q(V.I)), R.b(V.I, V.J))
    >>> found = lower_score((R.w(V.I, V.J) <= body) | [F.sum], Names("J", "I"))
    >>> Score(found.tree), found.reads
    (tanh(S) + value0, (R.b(V.I, V.J),))
    """
    name, items = _combined(rule)
    after = [f for f in rule.functions if functions.kind(f) == functions.TRANSFORMATION]
    plain = None if after else _plain(name, items, names)
    if plain is not None and not any(_reads_places(term, names) for term in plain[1]):
        return _biased(_Lowering(names), *plain)
    try:
        return _computed(name, items, after, names)
    except NotLowered:
        if plain is None or names.computed:
            raise
        return _biased(_Lowering(names), *plain)


def dots_in(rule: nodes.Rule, key: str, computed: frozenset[str]) -> list[Dot]:
    """The dot products of a query and a key, wherever in a score they stand."""
    name, items = _combined(rule)
    names = Names(key, "", computed)
    total = _joined(name, items)
    dots = _dots_of(total, names)
    if dots is not None:
        return list(dots[0])
    found = [dot for item in items for dot in _dots_below(item, names)]
    return found or _dots_below(total, names)


def additive(rule: nodes.Rule, key: str) -> Additive | None:
    """The score of a rule as additive attention, as in GAT and GATv2; None if it is not.

    >>> from edgewise.language import F, R, V
    >>> rule = (R.w(V.I, V.J) <= (R.l(V.I), R.r(V.J))) | [F.sum, F.leaky_relu(0.2)]
    >>> additive(rule, "J").slope
    0.2
    """
    name, items = _combined(rule)
    after = [f for f in rule.functions if functions.kind(f) == functions.TRANSFORMATION]
    if len(after) == 1 and name == "sum":
        return _additive(after[0], items, None, key)
    if after or len(items) != 1:
        return None
    match items[0]:
        case nodes.Apply(function=function, operands=(inner,), weight=weight):
            return _additive(function, (inner,), weight, key)
    return None


def _additive(
    function: nodes.Function,
    items: Sequence[nodes.Expression],
    vector: nodes.Weight | None,
    key: str,
) -> Additive | None:
    sloped = functions.definition(function).slope
    if sloped is None or (vector is not None and key in names_in(vector)):
        return None
    slope = sloped(**functions.arguments(function))
    terms = [term for item in items for term in _summands(item)]
    keys = tuple(term for term in terms if key in names_in(term))
    queries = tuple(term for term in terms if key not in names_in(term))
    return Additive(queries, keys, slope, vector) if keys and queries else None


def _summands(item: nodes.Expression) -> tuple[nodes.Expression, ...]:
    match item:
        case nodes.Apply(function=f, operands=operands, weight=None) if f.name == "sum":
            return tuple(term for operand in operands for term in _summands(operand))
    return (item,)


def _combined(rule: nodes.Rule) -> tuple[str, tuple[nodes.Expression, ...]]:
    """How a rule combines its values, and these."""
    return combination(rule.functions).name, tuple(x for x in rule.body if x.carries_value)


def _joined(name: str, items: tuple[nodes.Expression, ...]) -> nodes.Expression:
    return items[0] if len(items) == 1 else nodes.Apply(nodes.Function(name), items)


def _plain(
    name: str, items: tuple[nodes.Expression, ...], names: Names
) -> tuple[tuple[Dot, ...], tuple[Term, ...]] | None:
    """Dot products and biases, if the score is a sum of them."""
    try:
        terms = terms_of(name, items)
    except NotASum:
        return None
    found = [(term, dot_of(term, names.key, names.computed)) for term in terms]
    if len({dot.pair for _, dot in found if dot is not None}) > 1:
        # only dot products with the same numbers of the pair are one sum: others are biases
        found = [(term, dot if dot is None or not dot.pair else None) for term, dot in found]
    dots = tuple(dot for _, dot in found if dot is not None)
    return (dots, tuple(term for term, dot in found if dot is None)) if dots else None


def _reads_places(term: Term, names: Names) -> bool:
    """Whether a term counts with places: kernels compute it, with no value per pair."""
    special = any(isinstance(a, nodes.SpecialAtom) for a in atoms(term.factors))
    return special or bool(names.computed & names_in(term.factors))


def _computed(
    name: str, items: tuple[nodes.Expression, ...], after: Sequence[nodes.Function], names: Names
) -> LoweredScore:
    """A score that is computed pair by pair; biases are added last, so they may be anything."""
    biases: list[nodes.Expression] = []
    if name == "sum" and not after:
        biases = [
            item for item in items if not _dots_below(item, names) and not _is_computed(item, names)
        ]
    lowering = _Lowering(names)
    tree = lowering.tree(_joined(name, tuple(item for item in items if item not in biases)))
    for function in after:
        form = functions.definition(function).score
        if form is None:
            raise NotLowered(f"`{function!r}` is not computed pair by pair")
        tree = form(edgewise.scores, tree, **functions.arguments(function))
    _refuse_others(lowering.places, names)
    return _biased(lowering, lowering.dots, [t for item in biases for t in _terms(item)], tree)


def _biased(
    lowering: _Lowering, dots: tuple[Dot, ...], biases: Sequence[Term], tree: Score | None = None
) -> LoweredScore:
    tree = lowering.product(dots) if tree is None else tree
    for term in biases:
        tree = tree + lowering.value(times(term.factors))
    return LoweredScore(tree.node, lowering.dots, tuple(lowering.reads))


def _refuse_others(places: Sequence[nodes.SpecialAtom], names: Names) -> None:
    for item in places:
        if not {v.name for v in variables(item.terms)} <= {names.query, names.key}:
            reason = f"counts with more than `{names.query}` and `{names.key}`"
            raise OtherPlaces(f"`{item!r}` {reason}")


def _is_computed(item: nodes.Expression, names: Names) -> bool:
    try:
        _Lowering(names).tree(item)
    except NotLowered:
        return False
    return True


@dataclass
class _Lowering:
    """Builds one tree: its dot products, which all stand in one place, and what it reads."""

    names: Names
    dots: tuple[Dot, ...] = ()
    reads: dict[nodes.Expression, int] = field(default_factory=dict)
    places: list[nodes.SpecialAtom] = field(default_factory=list)

    def tree(self, item: nodes.Expression) -> Score:
        found = _dots_of(item, self.names)
        if found is not None:
            dots, factors = found
            return reduce(mul, [*map(self.tree, factors), self.product(dots)])
        match item:
            case nodes.Weight() if is_scalar(item) and not self.names.places(item):
                number = constant(item)
                return self._entry(item) if number is None else as_score(number)
            case nodes.SpecialAtom(name=name, negated=False) if name in OF_PLACES:
                self.places.append(item)
                a, b = map(self._place, item.terms)
                return self._weighted(item.weight, OF_PLACES[name](a, b))
            case nodes.Atom() if item.carries_value and not item.negated:
                if not self.names.places(item):
                    return self._entry(item)
            case nodes.Apply(function=f, operands=operands, weight=weight):
                if f.name == "sum":
                    return self._weighted(weight, self._sum(operands))
                form = functions.definition(f).score
                if form is not None:
                    parts = map(self.tree, operands)
                    return self._weighted(
                        weight, form(edgewise.scores, *parts, **functions.arguments(f))
                    )
        raise NotLowered(f"`{item!r}` is not computed pair by pair")

    def product(self, dots: tuple[Dot, ...]) -> Score:
        """S, times the numbers of the pair that dot products are multiplied with."""
        if self.dots and self.dots != dots:
            raise NotLowered("the score has dot products in different places")
        if len({dot.pair for dot in dots}) > 1:
            raise NotLowered("its dot products are multiplied with different values of the pair")
        self.dots = dots
        pair = dots[0].pair
        return self.value(times(pair)) * S if pair else S

    def value(self, item: nodes.Expression) -> Score:
        return Score(PairValue(self._number(item)))

    def _number(self, item: nodes.Expression) -> int:
        return self.reads.setdefault(item, len(self.reads))

    def _entry(self, item: nodes.Expression) -> Score:
        """A number of each head or, where computed variables choose it, of each distance."""
        by_distance = self.names.computed & names_in(item)
        return Score(Entry(self._number(item), (I - J).node if by_distance else ZERO))

    def _place(self, term: nodes.Term) -> Score:
        if isinstance(term, nodes.Variable):
            return I if term.name == self.names.query else J
        return as_score(int(term))

    def _weighted(self, weight: nodes.Weight | None, score: Score) -> Score:
        if weight is None:
            return score
        if not is_scalar(weight):
            raise NotLowered(f"`{weight!r}` is not a number")
        if self.names.places(weight):
            raise NotLowered(f"`{weight!r}` is not one number for all pairs of a head")
        return self.tree(weight) * score

    def _sum(self, operands: tuple[nodes.Expression, ...]) -> Score:
        """The dot products of a sum first, as one."""
        found = [_dots_of(x, self.names) for x in operands]
        alone = [some is not None and not some[1] for some in found]
        rest = [x for x, yes in zip(operands, alone, strict=True) if not yes]
        dots = tuple(dot for some in found if some and not some[1] for dot in some[0])
        first = [self.product(dots)] if dots else []
        return reduce(add, [*first, *map(self.tree, rest)])


def _dots_below(item: nodes.Expression, names: Names) -> list[Dot]:
    found = _dots_of(item, names)
    if found is not None:
        return list(found[0])
    below = item.operands if isinstance(item, nodes.Apply) else ()
    return [dot for x in below for dot in _dots_below(x, names)]


def _terms(item: nodes.Expression) -> tuple[Term, ...]:
    try:
        return terms_of("sum", (item,))
    except NotASum:
        return (Term((item,)),)


def _dots_of(
    item: nodes.Expression, names: Names
) -> tuple[tuple[Dot, ...], tuple[nodes.Expression, ...]] | None:
    """The dot products whose sum an expression is, or one and its factors; None if neither."""
    terms = _terms(item)
    found = [dot_of(term, names.key, names.computed) for term in terms]
    dots = tuple(dot for dot in found if dot is not None)
    if dots:
        return (dots, ()) if len(dots) == len(found) else None
    if len(terms) != 1:
        return None
    factors = tuple(f for f in terms[0].factors if _is_place(f, names))
    rest = Term(tuple(f for f in terms[0].factors if not _is_place(f, names)))
    dot = dot_of(rest, names.key, names.computed) if factors else None
    return None if dot is None else ((dot,), factors)


def _is_place(item: nodes.Expression, names: Names) -> bool:
    """Whether a factor is a function of places, or an entry of a table that places choose."""
    return bool(names.computed & names_in(item)) or counts_places(item)
