"""The attention node that a weighted sum is, if its score is one that kernels compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgewise.graphs import Pattern
from edgewise.language import functions, nodes
from edgewise.language.statements import atoms
from edgewise.language.terms import variables
from edgewise.passes.find_patterns import compared
from edgewise.plan.code import DOT, Code, Names, NotCode, code_of, dots_in
from edgewise.plan.distances import NotByDistance, check_distances, computing
from edgewise.plan.forms import sums_of
from edgewise.plan.nodes import Attention
from edgewise.plan.score import Dot, Opaque, Term, dot_of, names_in, terms_of
from edgewise.reference.evaluate import combination

Factors = tuple[nodes.Expression, ...]
Instead = tuple[nodes.Rule, nodes.Rule]


class NotAttention(Exception):
    """Internal: why a softmax and what reads it are not one attention."""


@dataclass(frozen=True)
class WeightedSum:
    """Σ weights · value: the score rule in the variables of the sum, and what it weighs."""

    score: nodes.Rule
    key: str
    value: nodes.Expression
    dropout: float


def attention_node(sum_: WeightedSum, using: nodes.Rule, instead: Instead) -> Attention:
    """The attention node, if the score is code or dot products and biases over one pair."""
    bent = _bent(sum_, using, instead)
    if bent is not None:
        return bent
    score, key = sum_.score, sum_.key
    heads = [v.name for v in variables(score.head.terms) if v.name != key]
    conditions = [item for item in score.body if not item.carries_value]
    chain, conditions = computing(conditions, {*heads, key})
    computed = names_in(tuple(chain)) - {*heads, key}
    name = combination(score.functions).name
    items = tuple(item for item in score.body if item.carries_value)
    dots = dots_in(name, items, key, computed)
    if not dots:
        raise NotAttention("no part of the score is a dot product of a query and a key")
    taken = names_in(tuple(dot.key for dot in dots)) | names_in(sum_.value)
    query = _query([n for n in heads if n not in taken], conditions)
    names = Names(key, query, computed)
    code = _code(score, name, items, names)
    _refuse_names(code, names, {*heads, key})
    _refuse_chain(chain, code, names)
    edges = [c for c in conditions if _lists(c, query, key)]
    rows = [c for c in conditions if _is_row(c, query, key)]
    others = [c for c in conditions if c not in edges and c not in rows]
    return Attention(
        head=replace(using.head, weight=None),
        queries=tuple(dot.query for dot in code.dots),
        keys=tuple(dot.key for dot in code.dots),
        scales=tuple(dot.scale for dot in code.dots),
        biases=tuple(term.factors for term in code.biases),
        value=sum_.value,
        shared=tuple(n for n in heads if n != query),
        query=query,
        key=key,
        pattern=_pattern(others, query, key),
        dropout=sum_.dropout,
        instead=instead,
        edges=tuple(c for c in edges if isinstance(c, nodes.Atom)),
        code=None if code.score == DOT else code.score,
        factors=code.dots[0].pair,
        numbers=tuple(number for dot in code.dots for number in dot.numbers),
        distances=tuple(chain),
        rows=tuple(c for c in rows if isinstance(c, nodes.Atom)),
    )


def _code(score: nodes.Rule, name: str, items: Factors, names: Names) -> Code:
    """The score as dot products and biases if it is plain, else as code."""
    after = tuple(f for f in score.functions if functions.kind(f) == functions.TRANSFORMATION)
    plain = None if after else _plain(name, items, names)
    if plain is not None and not any(_is_code(term, names) for term in plain.biases):
        return plain
    try:
        return code_of(name, items, after, names)
    except NotCode as reason:
        if plain is not None and not names.computed:
            return plain
        raise NotAttention(str(reason)) from None


def _plain(name: str, items: Factors, names: Names) -> Code | None:
    try:
        terms = terms_of(name, items)
    except Opaque:
        return None
    dots = [(term, dot_of(term, names.key, names.computed)) for term in terms]
    dots = _of_one_factor(dots)
    found = tuple(dot for _, dot in dots if dot is not None)
    biases = tuple(term for term, dot in dots if dot is None)
    return Code(DOT, found, biases) if found else None


def _of_one_factor(dots: list[tuple[Term, Dot | None]]) -> list[tuple[Term, Dot | None]]:
    """Dot products with the same numbers of the pair; others are biases if there are several."""
    kinds = {dot.pair for _, dot in dots if dot is not None}
    if len(kinds) < 2:
        return dots
    return [(term, dot if dot is None or not dot.pair else None) for term, dot in dots]


def _is_code(term: Term, names: Names) -> bool:
    """Whether a term counts with the places themselves: in a kernel it needs no value per pair."""
    places = any(isinstance(a, nodes.SpecialAtom) for a in atoms(term.factors))
    return places or bool(names.computed & names_in(term.factors))


def _refuse_names(code: Code, names: Names, head: set[str]) -> None:
    read = [e for dot in code.dots for e in (dot.query, dot.key, *dot.pair)]
    read += [f for term in code.biases for f in term.factors]
    used = names_in((*read, code.score))
    if used - names.computed != head:
        raise NotAttention("the score has variables that its head does not have")
    for item in atoms((code.score,)):
        held = {v.name for v in variables(item.terms)}
        if isinstance(item, nodes.SpecialAtom) and not held <= {names.query, names.key}:
            reason = f"counts with more than `{names.query}` and `{names.key}`"
            raise NotAttention(f"`{item!r}` {reason}")


def _refuse_chain(chain: list[nodes.Expression], code: Code, names: Names) -> None:
    """Conditions that compute variables must choose entries of tables by distance."""
    elsewhere = [f for term in code.biases for f in term.factors]
    elsewhere += [e for dot in code.dots for e in (dot.query, dot.key, *dot.scale, *dot.pair)]
    if names.computed & names_in(tuple(elsewhere)):
        raise NotAttention("a value of each pair is chosen by a variable that is computed")
    if chain and not names.computed & names_in((code.score,)):
        raise NotAttention(f"`{chain[0]!r}` is not a pattern of `{names.query}` and `{names.key}`")
    try:
        check_distances(chain, names.query, names.key)
    except NotByDistance as reason:
        raise NotAttention(str(reason)) from None


def _is_row(item: nodes.Expression, query: str, key: str) -> bool:
    """Whether a condition is a relation that holds for queries, or for keys."""
    if not isinstance(item, nodes.Atom) or item.negated or len(item.terms) != 1:
        return False
    return isinstance(item.terms[0], nodes.Variable) and item.terms[0].name in (query, key)


def _bent(
    sum_: WeightedSum, using: nodes.Rule, instead: tuple[nodes.Rule, nodes.Rule]
) -> Attention | None:
    """The attention node of a bent sum of query and key along pairs that a relation lists."""
    score, key = sum_.score, sum_.key
    found = sums_of(score, key)
    conditions = [item for item in score.body if not item.carries_value]
    if found is None or not conditions:
        return None
    heads = [v.name for v in variables(score.head.terms) if v.name != key]
    vector = () if found.form.vector is None else (found.form.vector,)
    taken = names_in((*found.keys, *vector, sum_.value))
    candidates = [n for n in heads if n not in taken]
    query = _query(candidates, conditions) if candidates else key
    listed = all(_lists(c, query, key) for c in conditions)
    if query == key or not listed or names_in((*found.queries, *found.keys)) != {*heads, key}:
        return None
    return Attention(
        head=replace(using.head, weight=None),
        queries=found.queries,
        keys=found.keys,
        scales=(),
        biases=(),
        value=sum_.value,
        shared=tuple(n for n in heads if n != query),
        query=query,
        key=key,
        pattern=None,
        dropout=sum_.dropout,
        instead=instead,
        edges=tuple(c for c in conditions if isinstance(c, nodes.Atom)),
        form=found.form,
    )


def _lists(item: nodes.Expression, query: str, key: str) -> bool:
    """Whether a condition is a relation that lists pairs of query and key."""
    if not isinstance(item, nodes.Atom) or item.negated:
        return False
    names = [t.name if isinstance(t, nodes.Variable) else None for t in item.terms]
    return sorted(map(str, names)) == sorted([query, key]) and len(names) == 2


def _query(candidates: Sequence[str], conditions: Sequence[nodes.Expression]) -> str:
    """The variable that asks: one that keys and values do not hold, and conditions do."""
    if not candidates:
        raise NotAttention("every variable of the query is one of the keys or values too")
    held = names_in(tuple(conditions))
    return next((n for n in candidates if n in held), candidates[-1])


def _pattern(
    conditions: Sequence[nodes.Expression], query: str, key: str
) -> nodes.PatternAtom | None:
    """All conditions as one pattern of (query, key)."""
    found: Pattern | None = None
    for item in conditions:
        pattern = _pairs(item, query, key)
        if pattern is None:
            raise NotAttention(f"`{item!r}` is not a pattern of `{query}` and `{key}`")
        found = pattern if found is None else found & pattern
    if found is None:
        return None
    return nodes.PatternAtom(found, (nodes.Variable(query), nodes.Variable(key)))


def _pairs(item: nodes.Expression, query: str, key: str) -> Pattern | None:
    """The pairs that a condition allows on integer axes; None if they are not known."""
    if not isinstance(item, nodes.PatternAtom | nodes.SpecialAtom):
        return None
    names = [t.name if isinstance(t, nodes.Variable) else None for t in item.terms]
    if set(names) != {query, key} or len(names) != 2:
        return None
    pattern = item.pattern if isinstance(item, nodes.PatternAtom) else compared(item.name)
    if pattern is None:
        return None
    pattern = pattern if names == [query, key] else pattern.T
    return ~pattern if item.negated else pattern
