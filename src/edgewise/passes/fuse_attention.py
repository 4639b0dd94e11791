"""Turn a softmax over pairs and the weighted sum that uses it into one attention node."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from edgewise.language import functions, nodes
from edgewise.language.statements import atoms
from edgewise.language.substitution import substitute
from edgewise.language.terms import variables
from edgewise.plan.nodes import Attention, Plan
from edgewise.plan.score import Opaque, Term, names_in, terms_of
from edgewise.reference.evaluate import aggregation_of, combination


def fuse_attention(plan: Plan) -> Plan:
    for score in [s for s in plan.steps if isinstance(s, nodes.Rule)]:
        found = _attention(plan, score)
        if found is not None:
            using = found.instead[1]
            steps = tuple(found if s is using else s for s in plan.steps if s is not score)
            plan = replace(plan, steps=steps)
    return plan


def _attention(plan: Plan, score: nodes.Rule) -> Attention | None:
    softmax = aggregation_of(score, plan.aggregation)
    over = dict(softmax.arguments).get("agg_terms")
    if softmax.name != "softmax_agg" or not over or len(over) != 1:
        return None
    using = _user(plan, score)
    if using is None or not _plain_head(score) or not _sums(plan, using):
        return None
    weighted = _weighted_value(score, using, over[0])
    if weighted is None:
        return None
    value, dropout, renamed = weighted
    key = _renamed_key(score, renamed, over[0])
    return _node(renamed, using, value, dropout, key, (score, using))


def _renamed_key(score: nodes.Rule, renamed: nodes.Rule, over: str) -> str:
    old = [v.name for v in variables(score.head.terms)]
    new = [v.name for v in variables(renamed.head.terms)]
    return new[old.index(over)]


def _plain_head(score: nodes.Rule) -> bool:
    """Distinct variables, no weight, no transformation: the softmax is the value."""
    names = [t.name for t in score.head.terms if isinstance(t, nodes.Variable)]
    changes = [f for f in score.functions if functions.kind(f) == functions.TRANSFORMATION]
    return len(set(names)) == len(score.head.terms) and score.head.weight is None and not changes


def _user(plan: Plan, score: nodes.Rule) -> nodes.Rule | None:
    relation = score.head.relation
    uses = [
        (rule, a)
        for rule in plan.rules
        for a in atoms(rule.body)
        if isinstance(a, nodes.Atom) and a.relation == relation
    ]
    heads = Counter(rule.head.relation for rule in plan.rules)
    lined = {line.relation for line in plan.lines}
    stated = {fact.atom.relation for fact in plan.facts}
    if (
        relation == plan.output.relation
        or len(uses) != 1
        or heads[relation] != 1
        or relation in lined | stated
    ):
        return None
    user = uses[0][0]
    single = heads[user.head.relation] == 1 and user.head.relation not in stated
    return user if single and any(s is user for s in plan.steps) else None


def _sums(plan: Plan, rule: nodes.Rule) -> bool:
    """Whether a rule sums products, with nothing in between."""
    changes = [f for f in rule.functions if functions.kind(f) == functions.TRANSFORMATION]
    return (
        aggregation_of(rule, plan.aggregation).name == "sum_agg"
        and combination(rule.functions).name in ("product", "sum")
        and not changes
        and len({t.name for t in variables(rule.head.terms)}) == len(rule.head.terms)
    )


def _weighted_value(
    score: nodes.Rule, using: nodes.Rule, over: str
) -> tuple[nodes.Expression, float, nodes.Rule] | None:
    """The value that the weights multiply, the dropout on them, and the score in its variables."""
    items = list(using.body)
    if len(items) == 1 and isinstance(items[0], nodes.Apply) and items[0].weight is None:
        if items[0].function.name not in ("product", "elproduct"):
            return None
        items = list(items[0].operands)
    elif combination(using.functions).name != "product":
        return None
    found = [(n, _weights_atom(item, score.head.relation)) for n, item in enumerate(items)]
    places = [(n, pair) for n, pair in found if pair is not None]
    if len(places) != 1 or len(items) != 2:
        return None
    at, (atom, dropout) = places[0]
    value = items[1 - at]
    if not all(isinstance(t, nodes.Variable) for t in atom.terms) or not value.carries_value:
        return None
    names = {
        a.name: b.name
        for a, b in zip(variables(score.head.terms), variables(atom.terms), strict=True)
    }
    if len(set(names.values())) != len(names):
        return None
    summed = names[over]
    kept = {n for n in names.values() if n != summed}
    heads = {v.name for v in variables(using.head.terms)}
    if heads != kept or not names_in(value) <= kept | {summed} or summed not in names_in(value):
        return None
    return value, dropout, _in_names(score, names)


def _in_names(score: nodes.Rule, names: dict[str, str]) -> nodes.Rule:
    return substitute(score, {old: nodes.Variable(new) for old, new in names.items()})


def _weights_atom(item: nodes.Expression, relation: str) -> tuple[nodes.Atom, float] | None:
    match item:
        case nodes.Atom(weight=None) if item.relation == relation and item.carries_value:
            return item, 0.0
        case nodes.Apply(function=f, operands=(nodes.Atom(weight=None) as atom,), weight=None) if (
            f.name == "dropout" and atom.relation == relation
        ):
            return atom, float(f["p"])
    return None


@dataclass(frozen=True)
class Dot:
    """One term of a score that is a dot product: scale · query(I)ᵀ key(J)."""

    query: nodes.Expression
    key: nodes.Expression
    scale: tuple[nodes.Expression, ...]


def _dot(term: Term, key: str) -> Dot | None:
    scale = tuple(f for f in term.factors if not names_in(f))
    sided = [f for f in term.factors if names_in(f)]
    if len(sided) != 2:
        return None
    row, column = sided
    if not isinstance(row, nodes.Apply) or row.function.name != "transp" or row.weight is not None:
        return None
    left, right = row.operands[0], column
    if key in names_in(left) and key not in names_in(right):
        return Dot(right, left, scale)
    if key in names_in(right) and key not in names_in(left):
        return Dot(left, right, scale)
    return None


def _node(
    score: nodes.Rule,
    using: nodes.Rule,
    value: nodes.Expression,
    dropout: float,
    key: str,
    instead: tuple[nodes.Rule, nodes.Rule],
) -> Attention | None:
    """The attention node, if the score is dot products and biases over one pair of variables."""
    try:
        items = tuple(item for item in score.body if item.carries_value)
        terms = terms_of(combination(score.functions).name, items)
    except Opaque:
        return None
    dots = [(term, _dot(term, key)) for term in terms]
    found = [dot for _, dot in dots if dot is not None]
    others = [term.factors for term, dot in dots if dot is None]
    if not found or not all(names_in(f) for f in others):
        return None
    own = {n for dot in found for n in names_in(dot.query)}
    theirs = {n for dot in found for n in names_in(dot.key)} - {key}
    alone = own - theirs
    heads = [v.name for v in variables(score.head.terms) if v.name != key]
    if len(alone) != 1 or (own | theirs) != set(heads) or not theirs <= own:
        return None
    query = alone.pop()
    conditions = [item for item in score.body if not item.carries_value]
    pattern = _pattern(conditions, query, key)
    if len(conditions) > (pattern is not None) or query in names_in(value):
        return None
    if any(not item.carries_value for item in using.body):
        return None
    return Attention(
        head=using.head,
        queries=tuple(dot.query for dot in found),
        keys=tuple(dot.key for dot in found),
        scales=tuple(dot.scale for dot in found),
        biases=tuple(others),
        value=value,
        shared=tuple(n for n in heads if n != query),
        query=query,
        key=key,
        pattern=pattern,
        dropout=dropout,
        instead=instead,
    )


def _pattern(conditions: list[nodes.Expression], query: str, key: str) -> nodes.PatternAtom | None:
    if len(conditions) != 1 or not isinstance(conditions[0], nodes.PatternAtom):
        return None
    atom = conditions[0]
    names = [t.name if isinstance(t, nodes.Variable) else None for t in atom.terms]
    graph = ~atom.pattern if atom.negated else atom.pattern
    if names == [query, key]:
        return replace(atom, pattern=graph, negated=False)
    if names == [key, query]:
        return replace(atom, pattern=graph.T, terms=atom.terms[::-1], negated=False)
    return None
