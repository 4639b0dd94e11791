"""Turn a softmax over pairs and the weighted sum that uses it into one attention node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgewise.graphs import Pattern
from edgewise.language import functions, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import atoms
from edgewise.language.substitution import substitute
from edgewise.language.terms import variables
from edgewise.passes.find_patterns import compared
from edgewise.plan.code import DOT, Code, NotCode, code_of
from edgewise.plan.forms import sums_of
from edgewise.plan.nodes import Attention, Plan
from edgewise.plan.score import Opaque, Term, dot_of, names_in, terms_of
from edgewise.reference.evaluate import aggregation_of, combination

PRODUCT = nodes.Function("product")
Factors = tuple[nodes.Expression, ...]


class NotAttention(Exception):
    """Internal: why a softmax and what reads it are not one attention."""


def fuse_attention(plan: Plan) -> Plan:
    for score in list(_softmaxes(plan)):
        try:
            found = _attention(plan, score)
        except NotAttention:
            continue
        using = found.instead[1]
        steps = tuple(found if s is using else s for s in plan.steps if s is not score)
        plan = replace(plan, steps=steps)
    return plan


def refusals(plan: Plan) -> dict[str, str]:
    """Why softmaxes over pairs are not part of an attention, by relation."""
    found = {}
    for score in _softmaxes(plan):
        try:
            _attention(plan, score)
        except NotAttention as reason:
            found[score.head.relation] = str(reason)
    return found


def _softmaxes(plan: Plan) -> Iterator[nodes.Rule]:
    for step in plan.steps:
        if isinstance(step, nodes.Rule):
            function = aggregation_of(step, plan.aggregation)
            if function.name == "softmax_agg" and dict(function.arguments).get("agg_terms"):
                yield step


def _attention(plan: Plan, score: nodes.Rule) -> Attention:
    over = aggregation_of(score, plan.aggregation)["agg_terms"]
    if len(over) != 1:
        raise NotAttention(f"the softmax is over {len(over)} variables")
    _refuse_head(score)
    using = _user(plan, score)
    _refuse_sum(plan, using)
    sum_ = _weighted_sum(score, using, over[0])
    return _node(plan, sum_, using, (score, using))


def _refuse_head(score: nodes.Rule) -> None:
    """The softmax must be the value: distinct variables, no weight."""
    relation, terms = score.head.relation, score.head.terms
    if len({v.name for v in variables(terms)}) != len(terms):
        raise NotAttention(f"the terms of `{relation}` are not different variables")
    if score.head.weight is not None:
        raise NotAttention(f"`{relation}` has a weight of its own")


def _refuse_transformation(rule: nodes.Rule) -> None:
    for function in rule.functions:
        if functions.kind(function) == functions.TRANSFORMATION:
            raise NotAttention(f"`{rule.head.relation}` is transformed by {function.name}")


def _user(plan: Plan, score: nodes.Rule) -> nodes.Rule:
    """The one rule that reads the weights."""
    relation = score.head.relation
    uses = [
        rule
        for rule in plan.rules
        for a in atoms(rule.body)
        if isinstance(a, nodes.Atom) and a.relation == relation
    ]
    if relation == plan.output.relation:
        raise NotAttention(f"`{relation}` is the output")
    if len(uses) != 1:
        raise NotAttention(f"`{relation}` is read in {len(uses)} places")
    if any(line.relation == relation for line in plan.lines):
        raise NotAttention(f"`{relation}` has a line of its own")
    heads = Counter(rule.head.relation for rule in plan.rules)
    parts = components(needs(plan.rules))
    for name in (relation, uses[0].head.relation):
        if heads[name] != 1:
            raise NotAttention(f"{heads[name]} rules derive `{name}`")
        if any(fact.atom.relation == name for fact in plan.facts):
            raise NotAttention(f"`{name}` has facts")
        if any(name in part and len(part) > 1 for part in parts):
            raise NotAttention(f"`{name}` is recursive")
    return uses[0]


def _refuse_sum(plan: Plan, rule: nodes.Rule) -> None:
    relation, terms = rule.head.relation, rule.head.terms
    aggregation = aggregation_of(rule, plan.aggregation).name
    if aggregation != "sum_agg":
        raise NotAttention(f"`{relation}` aggregates by {aggregation}, not by a sum")
    _refuse_transformation(rule)
    if any(not item.carries_value for item in rule.body):
        raise NotAttention(f"the sum in `{relation}` has conditions of its own")
    if len({v.name for v in variables(terms)}) != len(terms):
        raise NotAttention(f"the terms of `{relation}` are not different variables")


@dataclass(frozen=True)
class WeightedSum:
    """Σ weights · value: the score rule in the variables of the sum, and what it weighs."""

    score: nodes.Rule
    key: str
    value: nodes.Expression
    dropout: float


def _weighted_sum(score: nodes.Rule, using: nodes.Rule, over: str) -> WeightedSum:
    relation = score.head.relation
    items = _factors(using)
    found = [pair for item in items if (pair := _weights_atom(item, relation)) is not None]
    others = [item for item in items if _weights_atom(item, relation) is None]
    if len(found) != 1 or not others:
        raise NotAttention(f"`{using.head.relation}` is not a sum of `{relation}` times a value")
    atom, dropout = found[0]
    value = others[0] if len(others) == 1 else nodes.Apply(PRODUCT, tuple(others))
    value = _with_head_weight(value, using.head.weight)
    if len({v.name for v in variables(atom.terms)}) != len(atom.terms):
        raise NotAttention(f"`{atom!r}` does not have different variables")
    pairs = zip(variables(score.head.terms), variables(atom.terms), strict=True)
    names = {a.name: b.name for a, b in pairs}
    key = names[over]
    kept = set(names.values()) - {key}
    if {v.name for v in variables(using.head.terms)} != kept:
        raise NotAttention(f"`{using.head.relation}` does not sum over `{key}` alone")
    if not names_in(value) <= kept | {key} or key not in names_in(value):
        raise NotAttention(f"the value `{value!r}` is not one of each key `{key}`")
    moved: dict[str, nodes.Term] = {old: nodes.Variable(new) for old, new in names.items()}
    return WeightedSum(substitute(score, moved), key, value, dropout)


def _factors(using: nodes.Rule) -> Factors:
    if len(using.body) == 1 and isinstance(using.body[0], nodes.Apply):
        product = using.body[0]
        plain = product.function.name in ("product", "elproduct") and product.weight is None
        return product.operands if plain else ()
    return using.body if combination(using.functions).name == "product" else ()


def _weights_atom(item: nodes.Expression, relation: str) -> tuple[nodes.Atom, float] | None:
    match item:
        case nodes.Atom(weight=None) if item.relation == relation and item.carries_value:
            return item, 0.0
        case nodes.Apply(function=f, operands=(nodes.Atom(weight=None) as atom,), weight=None) if (
            f.name == "dropout" and atom.relation == relation
        ):
            return atom, float(f["p"])
    return None


def _with_head_weight(value: nodes.Expression, weight: nodes.Weight | None) -> nodes.Expression:
    """W · Σ_J w · v(J) = Σ_J w · (W · v(J)): a weight on the sum is one on the value."""
    return value if weight is None else nodes.Apply(nodes.Function("identity"), (value,), weight)


def _node(
    plan: Plan, sum_: WeightedSum, using: nodes.Rule, instead: tuple[nodes.Rule, nodes.Rule]
) -> Attention:
    """The attention node, if the score is dot products and biases over one pair of variables."""
    score, key = sum_.score, sum_.key
    bent = _bent(sum_, using, instead)
    if bent is not None:
        return bent
    code = _code(score, key)
    found, biases = code.dots, tuple(term.factors for term in code.biases)
    heads = [v.name for v in variables(score.head.terms) if v.name != key]
    queries, keys = tuple(dot.query for dot in found), tuple(dot.key for dot in found)
    if names_in((*queries, *keys, *sum(biases, ()), code.score)) != {*heads, key}:
        raise NotAttention("the score has variables that its head does not have")
    conditions = [item for item in score.body if not item.carries_value]
    taken = names_in(keys) | names_in(sum_.value)
    query = _query([n for n in heads if n not in taken], conditions)
    _refuse_places(code.score, query, key)
    return Attention(
        head=replace(using.head, weight=None),
        queries=queries,
        keys=keys,
        scales=tuple(dot.scale for dot in found),
        biases=biases,
        value=sum_.value,
        shared=tuple(n for n in heads if n != query),
        query=query,
        key=key,
        pattern=_pattern([c for c in conditions if not _lists(c, query, key)], query, key),
        dropout=sum_.dropout,
        instead=instead,
        edges=tuple(c for c in conditions if isinstance(c, nodes.Atom) and _lists(c, query, key)),
        code=None if code.score == DOT else code.score,
    )


def _code(score: nodes.Rule, key: str) -> Code:
    """The score as dot products and biases if it is plain, else as code."""
    items = tuple(item for item in score.body if item.carries_value)
    name = combination(score.functions).name
    after = tuple(f for f in score.functions if functions.kind(f) == functions.TRANSFORMATION)
    plain = None if after else _plain(name, items, key)
    if plain is not None and not any(_has_places(term) for term in plain.biases):
        return plain
    try:
        return code_of(name, items, after, key)
    except NotCode as reason:
        if plain is not None:
            return plain
        raise NotAttention(str(reason)) from None


def _plain(name: str, items: Factors, key: str) -> Code | None:
    try:
        terms = terms_of(name, items)
    except Opaque:
        return None
    dots = [(term, dot_of(term, key)) for term in terms]
    found = tuple(dot for _, dot in dots if dot is not None)
    biases = tuple(term for term, dot in dots if dot is None)
    return Code(DOT, found, biases) if found else None


def _has_places(term: Term) -> bool:
    """Whether a term counts with the places themselves: in a kernel it needs no value per pair."""
    return any(isinstance(a, nodes.SpecialAtom) for a in atoms(term.factors))


def _refuse_places(score: nodes.Expression, query: str, key: str) -> None:
    for item in atoms((score,)):
        names = {v.name for v in variables(item.terms)}
        if isinstance(item, nodes.SpecialAtom) and not names <= {query, key}:
            raise NotAttention(f"`{item!r}` counts with more than `{query}` and `{key}`")
        if isinstance(item, nodes.Atom) and query in names:
            raise NotAttention(f"`{item!r}` is not one number for all pairs of a head")


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
