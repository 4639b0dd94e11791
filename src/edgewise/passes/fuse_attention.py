"""Turn a softmax over pairs and the weighted sum that uses it into one attention node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import aggregation_of, atoms, combination, substitute
from edgewise.language.terms import variables
from edgewise.passes.attention_mask import unfolding
from edgewise.passes.attention_node import NotAttention, WeightedSum, attention_node
from edgewise.passes.inlining import same_domains
from edgewise.passes.relational_node import relational_node
from edgewise.plan.nodes import Fused, Plan
from edgewise.plan.score import is_softmax, names_in

PRODUCT = nodes.Function("product")
Factors = tuple[nodes.Expression, ...]


def fuse_attention(plan: Plan) -> Plan:
    for score in list(_softmaxes(plan)):
        try:
            found = _attention(plan, score)
        except NotAttention:
            continue
        using = found.replaces[1]
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
        if isinstance(step, nodes.Rule) and is_softmax(step, plan.aggregation):
            yield step


def _attention(plan: Plan, score: nodes.Rule) -> Fused:
    over = aggregation_of(score, plan.aggregation)["agg_terms"]
    if len(over) != 1:
        raise NotAttention(f"the softmax is over {len(over)} variables")
    _refuse_head(score)
    using = _user(plan, score)
    _refuse_sum(plan, using)
    sum_ = _weighted_sum(plan, score, using, over[0])
    try:
        return attention_node(sum_, using, (score, using), unfolding(plan))
    except NotAttention:
        found = relational_node(sum_, using, (score, using))
        if found is None:
            raise
        return found


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
    if relation in plan.wanted:
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


def _weighted_sum(plan: Plan, score: nodes.Rule, using: nodes.Rule, over: str) -> WeightedSum:
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
    heads = set(names.values()) - {key}
    if {v.name for v in variables(using.head.terms)} != heads:
        raise NotAttention(f"`{using.head.relation}` does not sum over `{key}` alone")
    if not names_in(value) <= heads | {key} or key not in names_in(value):
        raise NotAttention(f"the value `{value!r}` is not one of each key `{key}`")
    moved: dict[str, nodes.Term] = {old: nodes.Variable(new) for old, new in names.items()}
    if not same_domains(moved, plan.domains):
        raise NotAttention(f"`{relation}` is read by variables of other domains")
    return WeightedSum(substitute(score, moved), key, value, dropout)


def _factors(using: nodes.Rule) -> Factors:
    if len(using.body) == 1 and isinstance(using.body[0], nodes.Apply):
        product = using.body[0]
        distributes = Law.DISTRIBUTES in functions.definition(product.function)
        return product.operands if distributes and product.weight is None else ()
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
