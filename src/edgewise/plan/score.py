"""A score as a sum of products, each factor knowing which variables it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.functions import DEFINITIONS, Law
from edgewise.language import nodes
from edgewise.language.functions import argument
from edgewise.language.statements import aggregation_of, atoms, weights
from edgewise.language.terms import variables
from edgewise.plan.nodes import Dot

MOST_TERMS = 16
PRODUCT = nodes.Function("product")


@dataclass(frozen=True)
class Term:
    """A product of factors, in order."""

    factors: tuple[nodes.Expression, ...]


class NotASum(Exception):
    """Internal: the expression is not a sum of products."""


def names_in(item: Any) -> frozenset[str]:
    """The variables of an expression, those of weight families included."""
    terms = [t for a in atoms(item) for t in a.terms]
    terms += [k for w in weights(item) for k in w.keys]
    return frozenset(v.name for v in variables(terms))


def is_softmax(rule: nodes.Rule, default: nodes.Function) -> bool:
    """Whether a rule gives each head its share of a softmax over groups."""
    function = aggregation_of(rule, default)
    return function.name == "softmax_agg" and bool(argument(function, "agg_terms"))


def terms_of(name: str, operands: tuple[nodes.Expression, ...]) -> tuple[Term, ...]:
    """The terms of `combination(operands)`.

    >>> from edgewise.language import R, V
    >>> len(terms_of("sum", (R.k(V.J).T @ R.q(V.I), R.b(V.I, V.J))))
    2
    """
    if name == "sum":
        return tuple(term for operand in operands for term in _expanded(operand))
    if Law.DISTRIBUTES in DEFINITIONS[name]:
        found: tuple[Term, ...] = (Term(()),)
        for operand in operands:
            found = tuple(
                Term((*left.factors, *right.factors))
                for left in found
                for right in _expanded(operand)
            )
            if len(found) > MOST_TERMS:
                raise NotASum
        return found
    raise NotASum


def _expanded(item: nodes.Expression) -> tuple[Term, ...]:
    if not isinstance(item, nodes.Apply):
        return (Term((item,)),)
    name, lead = item.function.name, () if item.weight is None else (item.weight,)
    if name == "elproduct" and any(map(_is_plainly_scalar, item.operands)):
        name = "product"  # of scalars: both are the same
    if name == "identity":
        name = "sum"
    if name not in ("sum", "product"):
        return (Term((item,)),)
    return tuple(Term((*lead, *t.factors)) for t in terms_of(name, item.operands))


def _is_plainly_scalar(item: nodes.Expression) -> bool:
    """Whether an expression is plainly a scalar: a number, or a row times a column."""
    if isinstance(item, nodes.Weight):
        return is_scalar(item)
    return (
        isinstance(item, nodes.Apply)
        and item.function.name == "product"
        and len(item.operands) > 1
        and is_row(item.operands[0])
        and not is_row(item.operands[-1])
    )


def is_scalar(weight: nodes.Weight) -> bool:
    """Whether a weight says that it is one number.

    >>> from edgewise.language import W
    >>> is_scalar(W.a[2.0]), is_scalar(W.a[2, 2])
    (True, False)
    """
    return isinstance(weight.value, float | int) or weight.shape in ((), (1,), (1, 1))


def constant(weight: nodes.Weight) -> float | None:
    """The number that a weight is, if it is written down and not learned."""
    plain = weight.is_fixed and isinstance(weight.value, float | int)
    return float(weight.value) if plain else None  # type: ignore[arg-type]


def is_row(item: nodes.Expression) -> bool:
    """Whether an expression is a transposed one."""
    return isinstance(item, nodes.Apply) and item.function.name == "transp" and item.weight is None


def counts_places(item: nodes.Expression) -> bool:
    """Whether an expression is a function of places alone, such as `F.abs(sub_eval(I, J))`."""
    found = list(atoms(item))
    return bool(found) and all(isinstance(a, nodes.SpecialAtom) for a in found)


def dot_of(term: Term, key: str, computed: frozenset[str] = frozenset()) -> Dot | None:
    """A term as the dot product of a query and a key; None if it is none, or has factors
    that are functions of places, or hold variables that are `computed` from them.

    What stands between row and column belongs to the column, what stands outside is a scale, or a
    number of the query, of the key or of their pair.
    """
    rows = [n for n, f in enumerate(term.factors) if is_row(f) and names_in(f)]
    if len(rows) != 1:
        return None
    start = rows[0]
    ends = (n for n in range(start + 1, len(term.factors)) if names_in(term.factors[n]))
    end = next(ends, None)
    if end is None:
        return None
    row, *between = term.factors[start:end]
    assert isinstance(row, nodes.Apply)
    left, right = row.operands[0], times((*between, term.factors[end]))
    if (key in names_in(left)) == (key in names_in(right)):
        return None
    query, found = (right, left) if key in names_in(left) else (left, right)
    outside = (*term.factors[:start], *term.factors[end + 1 :])
    if computed & names_in(term.factors) or any(map(counts_places, outside)):
        return None
    if any(isinstance(f, nodes.Weight) and names_in(f) and not is_scalar(f) for f in outside):
        return None
    own = names_in(query) - names_in(found)
    of_key = tuple(f for f in outside if key in names_in(f) and not own & names_in(f))
    of_pair = tuple(f for f in outside if key in names_in(f) and own & names_in(f))
    of_query = tuple(f for f in outside if names_in(f) and key not in names_in(f))
    scale = tuple(f for f in outside if not names_in(f))
    query, found = times((*of_query, query)), times((*of_key, found))
    return Dot(query, found, scale, of_pair, (*of_query, *of_key))


def times(factors: tuple[nodes.Expression, ...]) -> nodes.Expression:
    """The product of factors as one expression."""
    return factors[0] if len(factors) == 1 else nodes.Apply(PRODUCT, factors)
