"""The attention node that a weighted sum is, if its score is one that kernels compute."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from edgewise.graphs import Pattern
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.passes.attention_mask import Unfolding
from edgewise.passes.find_patterns import compared
from edgewise.plan.distances import NotByDistance, check_distances, computing
from edgewise.plan.lower_score import Names, NotLowered, OtherPlaces, additive, dots_in, lower_score
from edgewise.plan.mask import Condition, conditions_in
from edgewise.plan.nodes import AttendedPairs, Attention, LoweredScore
from edgewise.plan.score import names_in
from edgewise.scores.nodes import Entry, I, J, S, walk
from edgewise.scores.score import ScoreTooDeep

Replaced = tuple[nodes.Rule, nodes.Rule]


class NotAttention(Exception):
    """Internal: why a softmax and what reads it are not one attention."""


@dataclass(frozen=True)
class WeightedSum:
    """Σ weights · value: the score rule in the variables of the sum, and what it weighs."""

    score: nodes.Rule
    key: str
    value: nodes.Expression
    dropout: float


def attention_node(
    sum_: WeightedSum, using: nodes.Rule, replaces: Replaced, unfolding: Unfolding
) -> Attention:
    """The attention node, if the score is a tree over one pair of query and key."""
    found = _additive(sum_, using, replaces)
    if found is not None:
        return found
    rule, key = sum_.score, sum_.key
    heads = [v.name for v in variables(rule.head.terms) if v.name != key]
    conditions = [item for item in rule.body if not item.carries_value]
    read = names_in(tuple(item for item in rule.body if item.carries_value))
    chain, conditions = computing(conditions, read - {*heads, key}, {*heads, key})
    computed = names_in(tuple(chain)) - {*heads, key}
    dots = dots_in(rule, key, computed)
    if not dots:
        raise NotAttention("no part of the score is a dot product of a query and a key")
    taken = names_in(tuple(dot.key for dot in dots)) | names_in(sum_.value)
    query = _query([n for n in heads if n not in taken], conditions)
    names = Names(key, query, computed)
    try:
        score = replace(lower_score(rule, names), where=tuple(chain))
    except (NotLowered, OtherPlaces, ScoreTooDeep) as reason:
        raise NotAttention(str(reason)) from None
    _refuse_names(score, names, {*heads, key})
    _refuse_chain(score, names)
    pairs = _attended(conditions, query, key, frozenset({*heads, key}), unfolding)
    return _node(sum_, using, query, score, pairs, replaces)


def _attended(
    conditions: Sequence[nodes.Expression],
    query: str,
    key: str,
    outer: frozenset[str],
    unfolding: Unfolding,
) -> AttendedPairs:
    """Arithmetic as one pattern; relations of pairs or rows as they are, or all else as a mask."""
    patterns = [p for c in conditions if (p := _pairs(c, query, key)) is not None]
    others = [c for c in conditions if _pairs(c, query, key) is None]
    pattern = None
    if patterns:
        terms = (nodes.Variable(query), nodes.Variable(key))
        pattern = nodes.PatternAtom(reduce(and_, patterns), terms)
    heads = _atoms([c for c in others if _is_row(c, outer - {query, key})])
    others = [c for c in others if not _is_row(c, outer - {query, key})]
    listed = [c for c in others if _lists(c, query, key) and not unfolding.replaces(c)]
    rows = [c for c in others if _is_row(c, {query, key})]
    if len(listed) + len(rows) == len(others):
        return AttendedPairs(pattern, _atoms(listed), _atoms(rows), heads)
    for item in others:
        if not isinstance(item, Condition):
            raise NotAttention(f"`{item!r}` depends on values, a mask on keys alone")
    pairs = _masked(AttendedPairs(pattern, heads=heads), others, outer, unfolding)
    if not pairs.without_facts:
        return pairs
    beside = _masked(pairs, others, outer, unfolding.keeping(pairs.without_facts))
    return replace(pairs, with_facts=beside)


def _masked(
    pairs: AttendedPairs,
    conditions: Sequence[nodes.Expression],
    outer: frozenset[str],
    unfolding: Unfolding,
) -> AttendedPairs:
    unfolding.unfolded, unfolding.without_facts = set(), set()
    mask = unfolding.mask(conditions, outer)
    read = {c.relation for c in conditions_in(mask) if isinstance(c, nodes.Atom)}
    unfolded, without = unfolding.unfolded - read, unfolding.without_facts
    return replace(pairs, mask=mask, unfolded=frozenset(unfolded), without_facts=frozenset(without))


def _node(
    sum_: WeightedSum,
    using: nodes.Rule,
    query: str,
    score: LoweredScore,
    pairs: AttendedPairs,
    replaces: Replaced,
) -> Attention:
    names = [v.name for v in variables(sum_.score.head.terms)]
    shared = tuple(n for n in names if n not in (query, sum_.key))
    head = replace(using.head, weight=None)
    return Attention(
        head, query, sum_.key, shared, score, sum_.value, pairs, sum_.dropout, replaces
    )


def _atoms(conditions: Sequence[nodes.Expression]) -> tuple[nodes.Atom, ...]:
    return tuple(c for c in conditions if isinstance(c, nodes.Atom))


def _refuse_names(score: LoweredScore, names: Names, head: set[str]) -> None:
    places = {I: names.query, J: names.key}
    used = {places[part] for part in walk(score.tree) if part in places}
    used |= names_in((*score.reads, *score.queries, *score.keys))
    if used - names.computed != head:
        raise NotAttention("the score has variables that its head does not have")


def _refuse_chain(score: LoweredScore, names: Names) -> None:
    """Conditions that compute variables must choose entries of tables by distance."""
    entries = {part.table for part in walk(score.tree) if isinstance(part, Entry)}
    elsewhere = [item for n, item in enumerate(score.reads) if n not in entries]
    elsewhere += [e for dot in score.dots for e in (dot.query, dot.key, *dot.scale)]
    if names.computed & names_in(tuple(elsewhere)):
        raise NotAttention("a value of each pair is chosen by a variable that is computed")
    if score.where and not names.computed & names_in(score.reads):
        first = score.where[0]
        raise NotAttention(f"`{first!r}` is not a pattern of `{names.query}` and `{names.key}`")
    try:
        check_distances(score.where, names.query, names.key)
    except NotByDistance as reason:
        raise NotAttention(str(reason)) from None


def _is_row(item: nodes.Expression, names: Collection[str]) -> bool:
    """Whether a condition is a relation that holds for some values of one of the variables."""
    if not isinstance(item, nodes.Atom) or item.negated or len(item.terms) != 1:
        return False
    return isinstance(item.terms[0], nodes.Variable) and item.terms[0].name in names


def _additive(sum_: WeightedSum, using: nodes.Rule, replaces: Replaced) -> Attention | None:
    """The node of additive attention along pairs that relations list."""
    rule, key = sum_.score, sum_.key
    found = additive(rule, key)
    conditions = [item for item in rule.body if not item.carries_value]
    if found is None or not conditions:
        return None
    heads = [v.name for v in variables(rule.head.terms) if v.name != key]
    vector = () if found.vector is None else (found.vector,)
    taken = names_in((*found.keys, *vector, sum_.value))
    candidates = [n for n in heads if n not in taken]
    query = _query(candidates, conditions) if candidates else key
    listed = all(_lists(c, query, key) for c in conditions)
    if query == key or not listed or names_in((*found.queries, *found.keys)) != {*heads, key}:
        return None
    pairs = AttendedPairs(listed=_atoms(conditions))
    return _node(sum_, using, query, LoweredScore(S, found), pairs, replaces)


def _lists(item: nodes.Expression, query: str, key: str) -> bool:
    """Whether a condition is a relation that lists pairs of query and key."""
    if not isinstance(item, nodes.Atom) or item.negated:
        return False
    names = [t.name if isinstance(t, nodes.Variable) else None for t in item.terms]
    return sorted(map(str, names)) == sorted([query, key]) and len(names) == 2


def _query(candidates: Sequence[str], conditions: Sequence[nodes.Expression]) -> str:
    """The query's variable: one that keys and values do not hold, and conditions do."""
    if not candidates:
        raise NotAttention("every variable of the query is one of the keys or values too")
    held = names_in(tuple(conditions))
    return next((n for n in candidates if n in held), candidates[-1])


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
