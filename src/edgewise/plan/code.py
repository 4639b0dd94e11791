"""Scores that are code: functions of the dot products, of places, tables and one number per head.

What kernels compute in their inner loop, pair by pair; a value of every pair is a bias instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.language import nodes
from edgewise.plan.score import (
    Dot,
    Opaque,
    Term,
    counts_places,
    dot_of,
    is_scalar,
    names_in,
    terms_of,
)

DOT = nodes.Atom("@dot")  # stands for the sum of all dot products
SUM = nodes.Function("sum")
PRODUCT = nodes.Function("product")
OF_ONE = (
    *("identity", "tanh", "sigmoid", "exp", "log", "sqrt", "relu", "leaky_relu", "silu", "square"),
    *("inverse", "reverse", "signum", "lukasiewicz", "abs"),
)
OF_SEVERAL = ("sum", "product", "elproduct", "max", "min", "avg")
OF_PLACES = ("add_eval", "sub_eval", "mul_eval", "max_eval", "min_eval")


class NotCode(Exception):
    """Internal: why a score is not code."""


@dataclass(frozen=True)
class Names:
    """The variables of a score: its key's, its query's, and those `computed` from the two."""

    key: str
    query: str
    computed: frozenset[str] = frozenset()

    def places(self, item: nodes.Expression) -> frozenset[str]:
        return names_in(item) & {self.key, self.query}


@dataclass(frozen=True)
class Code:
    """A score: an expression of `DOT`, the dot products, and terms that are added to it."""

    score: nodes.Expression
    dots: tuple[Dot, ...]
    biases: tuple[Term, ...]


def code_of(
    name: str, items: tuple[nodes.Expression, ...], after: tuple[nodes.Function, ...], names: Names
) -> Code:
    """The code of `after(name(items))`.

    >>> from edgewise.language import F, R, V
    >>> items = (F.tanh(R.k(V.J).T @ R.q(V.I)), R.b(V.I, V.J))
    >>> found = code_of("sum", items, (), Names("J", "I"))
    >>> found.score, len(found.dots), len(found.biases)
    (F.tanh(R["@dot"]), 1, 1)
    """
    parts, biases = list(items), []
    if name == "sum" and not after:  # biases are added last: they may be anything
        biases = [
            item for item in items if not _has_dots(item, names) and not _is_code(item, names)
        ]
        parts = [item for item in items if item not in biases]
    dots: dict[Dot, None] = {}
    whole = _whole(name, tuple(parts))
    for function in after:
        whole = nodes.Apply(function, (whole,))
    score = _walk(whole, names, dots)
    return Code(score, tuple(dots), tuple(t for item in biases for t in _terms(item)))


def dots_in(
    name: str, items: tuple[nodes.Expression, ...], key: str, computed: frozenset[str]
) -> list[Dot]:
    """The dot products of a query and a key, wherever in a score they stand."""
    names = Names(key, "", computed)
    whole = _dots_of(_whole(name, items), names)
    if whole is not None:
        return list(whole.dots)
    found = [dot for item in items for dot in _dots_below(item, names)]
    return found or _dots_below(_whole(name, items), names)


def _dots_below(item: nodes.Expression, names: Names) -> list[Dot]:
    found = _dots_of(item, names)
    if found is not None:
        return list(found.dots)
    below = item.operands if isinstance(item, nodes.Apply) else ()
    return [dot for x in below for dot in _dots_below(x, names)]


def _has_dots(item: nodes.Expression, names: Names) -> bool:
    return bool(_dots_below(item, names))


def _whole(name: str, items: tuple[nodes.Expression, ...]) -> nodes.Expression:
    return items[0] if len(items) == 1 else nodes.Apply(nodes.Function(name), items)


def _terms(item: nodes.Expression) -> tuple[Term, ...]:
    try:
        return terms_of("sum", (item,))
    except Opaque:
        return (Term((item,)),)


@dataclass(frozen=True)
class _Dots:
    """`factors` · Σ dots, where the factors are code of their own."""

    dots: tuple[Dot, ...]
    factors: tuple[nodes.Expression, ...] = ()


def _dots_of(item: nodes.Expression, names: Names) -> _Dots | None:
    """The dot products whose sum an expression is, or one with factors; None if it is neither."""
    terms = _terms(item)
    found = [dot_of(term, names.key, names.computed) for term in terms]
    dots = tuple(dot for dot in found if dot is not None)
    if dots:
        return _Dots(dots) if len(dots) == len(found) else None
    if len(terms) != 1:
        return None
    factors = tuple(f for f in terms[0].factors if _is_place(f, names))
    rest = Term(tuple(f for f in terms[0].factors if not _is_place(f, names)))
    dot = dot_of(rest, names.key, names.computed) if factors else None
    return None if dot is None else _Dots((dot,), factors)


def _is_place(item: nodes.Expression, names: Names) -> bool:
    """Whether a factor is a function of places, or an entry of a table that places choose."""
    return bool(names.computed & names_in(item)) or counts_places(item)


def _is_code(item: nodes.Expression, names: Names) -> bool:
    try:
        _walk(item, names, {})
    except NotCode:
        return False
    return True


def _walk(item: nodes.Expression, names: Names, dots: dict[Dot, None]) -> nodes.Expression:
    """The expression with `DOT` for its dot products, which all stand in one place."""
    found = _dots_of(item, names)
    if found is not None:
        factors = tuple(_walk(f, names, dots) for f in found.factors)
        dot = _stands(found.dots, dots)
        return nodes.Apply(PRODUCT, (*factors, dot)) if factors else dot
    match item:
        case nodes.Weight() if is_scalar(item) and not names.places(item):
            return item
        case nodes.SpecialAtom(name=name, negated=False) if name in OF_PLACES:
            _refuse_weight(item.weight, names)
            return item
        case nodes.Atom() if item.carries_value and not item.negated and not names.places(item):
            return item
        case nodes.Apply(function=f, operands=operands, weight=weight):
            _refuse_weight(weight, names)
            if f.name in OF_ONE and len(operands) == 1:
                return nodes.Apply(f, (_walk(operands[0], names, dots),), weight)
            if f.name in OF_SEVERAL:
                return nodes.Apply(f, _several(f.name, operands, names, dots), weight)
    raise NotCode(f"`{item!r}` is not computed pair by pair")


def _several(
    name: str, operands: tuple[nodes.Expression, ...], names: Names, dots: dict[Dot, None]
) -> tuple[nodes.Expression, ...]:
    """The operands of a sum: its dot products first, as one."""
    if name != "sum":
        return tuple(_walk(x, names, dots) for x in operands)
    found = [_dots_of(x, names) for x in operands]
    alone = [some is not None and not some.factors for some in found]
    rest = [x for x, yes in zip(operands, alone, strict=True) if not yes]
    together = tuple(dot for some in found if some and not some.factors for dot in some.dots)
    first = (_stands(together, dots),) if together else ()
    return (*first, *(_walk(x, names, dots) for x in rest))


def _stands(found: tuple[Dot, ...], dots: dict[Dot, None]) -> nodes.Expression:
    if dots and tuple(dots) != found:
        raise NotCode("the score has dot products in different places")
    if len({dot.pair for dot in found}) > 1:
        raise NotCode("its dot products are multiplied with different values of the pair")
    dots.update(dict.fromkeys(found))
    return DOT


def _refuse_weight(weight: nodes.Weight | None, names: Names) -> None:
    if weight is not None and not is_scalar(weight):
        raise NotCode(f"`{weight!r}` is not a number")
    if weight is not None and names.places(weight):
        raise NotCode(f"`{weight!r}` is not one number for all pairs of a head")
