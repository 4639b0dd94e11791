"""Scores that are code: functions of the dot products, of places and of one number per head.

What kernels compute in their inner loop, pair by pair; a value of every pair is a bias instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.language import nodes
from edgewise.plan.score import Dot, Opaque, Term, dot_of, is_scalar, names_in, terms_of

DOT = nodes.Atom("@dot")  # stands for the sum of all dot products
SUM = nodes.Function("sum")
PRODUCT = nodes.Function("product")
OF_ONE = (
    *("identity", "tanh", "sigmoid", "exp", "log", "sqrt", "relu", "leaky_relu", "silu", "square"),
    *("inverse", "reverse", "signum", "lukasiewicz"),
)
OF_SEVERAL = ("sum", "product", "elproduct", "max", "min", "avg")
OF_PLACES = ("add_eval", "sub_eval", "mul_eval", "max_eval", "min_eval")


class NotCode(Exception):
    """Internal: why a score is not code."""


@dataclass(frozen=True)
class Code:
    """A score: an expression of `DOT`, the dot products, and terms that are added to it."""

    score: nodes.Expression
    dots: tuple[Dot, ...]
    biases: tuple[Term, ...]


def code_of(
    name: str, items: tuple[nodes.Expression, ...], after: tuple[nodes.Function, ...], key: str
) -> Code:
    """The code of `after(name(items))`.

    >>> from edgewise.language import F, R, V
    >>> found = code_of("sum", (F.tanh(R.k(V.J).T @ R.q(V.I)), R.b(V.I, V.J)), (), "J")
    >>> found.score, len(found.dots), len(found.biases)
    (F.tanh(R["@dot"]), 1, 1)
    """
    if not any(_dots_in(item, key) for item in items) and not _dots_in(_whole(name, items), key):
        raise NotCode("no part of the score is a dot product of a query and a key")
    parts, biases = list(items), []
    if name == "sum" and not after:  # biases are added last: they may be anything
        biases = [item for item in items if not _dots_in(item, key) and not _is_code(item, key)]
        parts = [item for item in items if item not in biases]
    dots: dict[Dot, None] = {}
    whole = _whole(name, tuple(parts))
    for function in after:
        whole = nodes.Apply(function, (whole,))
    score = _walk(whole, key, dots)
    return Code(score, tuple(dots), tuple(t for item in biases for t in _terms(item)))


def _whole(name: str, items: tuple[nodes.Expression, ...]) -> nodes.Expression:
    return items[0] if len(items) == 1 else nodes.Apply(nodes.Function(name), items)


def _terms(item: nodes.Expression) -> tuple[Term, ...]:
    try:
        return terms_of("sum", (item,))
    except Opaque:
        return (Term((item,)),)


def _dots_of(item: nodes.Expression, key: str) -> tuple[Dot, ...] | None:
    """The dot products whose sum an expression is; None if it is none."""
    found = [dot_of(term, key) for term in _terms(item)]
    dots = tuple(dot for dot in found if dot is not None)
    return dots if len(dots) == len(found) else None


def _dots_in(item: nodes.Expression, key: str) -> bool:
    if _dots_of(item, key):
        return True
    return isinstance(item, nodes.Apply) and any(_dots_in(x, key) for x in item.operands)


def _is_code(item: nodes.Expression, key: str) -> bool:
    try:
        _walk(item, key, {})
    except NotCode:
        return False
    return True


def _walk(item: nodes.Expression, key: str, dots: dict[Dot, None]) -> nodes.Expression:
    """The expression with `DOT` for its dot products, which all stand in one place."""
    found = _dots_of(item, key)
    if found:
        return _stands(found, dots)
    match item:
        case nodes.Weight() if is_scalar(item):
            return item
        case nodes.SpecialAtom(name=name, negated=False) if name in OF_PLACES:
            _refuse_weight(item.weight)
            return item
        case nodes.Atom() if item.carries_value and not item.negated and key not in names_in(item):
            return item
        case nodes.Apply(function=f, operands=operands, weight=weight):
            _refuse_weight(weight)
            if f.name in OF_ONE and len(operands) == 1:
                return nodes.Apply(f, (_walk(operands[0], key, dots),), weight)
            if f.name in OF_SEVERAL:
                return nodes.Apply(f, _several(f.name, operands, key, dots), weight)
    raise NotCode(f"`{item!r}` is not computed pair by pair")


def _several(
    name: str, operands: tuple[nodes.Expression, ...], key: str, dots: dict[Dot, None]
) -> tuple[nodes.Expression, ...]:
    """The operands of a sum: its dot products first, as one."""
    if name != "sum":
        return tuple(_walk(x, key, dots) for x in operands)
    found = [_dots_of(x, key) or () for x in operands]
    rest = [x for x, some in zip(operands, found, strict=True) if not some]
    together = tuple(dot for some in found for dot in some)
    first = (_stands(together, dots),) if together else ()
    return (*first, *(_walk(x, key, dots) for x in rest))


def _stands(found: tuple[Dot, ...], dots: dict[Dot, None]) -> nodes.Expression:
    if dots and tuple(dots) != found:
        raise NotCode("the score has dot products in different places")
    dots.update(dict.fromkeys(found))
    return DOT


def _refuse_weight(weight: nodes.Weight | None) -> None:
    if weight is not None and not is_scalar(weight):
        raise NotCode(f"`{weight!r}` is not a number")
