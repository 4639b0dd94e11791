"""A score as a sum of products, each factor knowing which variables it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.language import nodes
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import variables

MOST_TERMS = 16


@dataclass(frozen=True)
class Term:
    """A product of factors, in order."""

    factors: tuple[nodes.Expression, ...]


class Opaque(Exception):
    """Internal: the expression is not a sum of products."""


def names_in(item: Any) -> frozenset[str]:
    """The variables of an expression, those of weight families included."""
    terms = [t for a in atoms(item) for t in a.terms]
    terms += [k for w in weights(item) for k in w.keys]
    return frozenset(v.name for v in variables(terms))


def terms_of(name: str, operands: tuple[nodes.Expression, ...]) -> tuple[Term, ...]:
    """The terms of `combination(operands)`.

    >>> from edgewise.language import R, V
    >>> len(terms_of("sum", (R.k(V.J).T @ R.q(V.I), R.b(V.I, V.J))))
    2
    """
    if name == "sum":
        return tuple(term for operand in operands for term in _expanded(operand))
    if name in ("product", "elproduct"):
        found = (Term(()),)
        for operand in operands:
            found = tuple(
                Term((*left.factors, *right.factors))
                for left in found
                for right in _expanded(operand)
            )
            if len(found) > MOST_TERMS:
                raise Opaque
        return found
    raise Opaque


def _expanded(item: nodes.Expression) -> tuple[Term, ...]:
    if isinstance(item, nodes.Apply) and item.weight is None:
        if item.function.name in ("sum", "product"):
            return terms_of(item.function.name, item.operands)
        if item.function.name == "identity" and len(item.operands) == 1:
            return _expanded(item.operands[0])
        if item.function.name == "elproduct" and _all_scalar_like(item.operands):
            return terms_of("elproduct", item.operands)
    return (Term((item,)),)


def _all_scalar_like(operands: tuple[nodes.Expression, ...]) -> bool:
    """Whether an elementwise product may be read as a product: one side is plainly a number."""
    return any(isinstance(o, nodes.Weight) and isinstance(o.value, float) for o in operands)
