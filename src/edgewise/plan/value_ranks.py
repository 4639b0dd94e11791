"""Comparisons of a value with another one's, as comparisons of their ranks.

`score(I) > score(J)` holds for up to n² pairs. It is read as `left(I, A), right(J, B), gt(A, B)`,
where A and B are the ranks of both values among all: n rows each, which masks take as intervals
and joins as ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgewise.language import nodes
from edgewise.language.dependencies import needs, reachable
from edgewise.language.statements import assigned_variables
from edgewise.plan.nodes import Plan

SIGNS = {"greater": "gt", "greater_equal": "geq"}
SIDES = (" left", " right")


@dataclass(frozen=True)
class RankedComparison:
    """A selection that compares two values with no variable in common."""

    sign: str
    head: nodes.Atom
    plans: tuple[Plan, Plan]  # of the values on the left and on the right

    def conditions(
        self, terms: tuple[nodes.Term, ...], number: int
    ) -> tuple[nodes.Expression, ...]:
        """The selection of some terms, by ranks."""
        place = {v: at for at, v in enumerate(self.head.terms)}
        ranks = [nodes.Variable(f"@{number}{side}") for side in SIDES]
        found: list[nodes.Expression] = []
        for plan, rank in zip(self.plans, ranks, strict=True):
            (head,) = plan.outputs
            own = tuple(terms[place[v]] for v in _terms(plan, head.relation))
            found.append(nodes.Atom(head.relation, (*own, rank), hidden=True))
        return (*found, nodes.SpecialAtom(self.sign, tuple(ranks)))


def ranked(plan: Plan) -> RankedComparison | None:
    """The plan of a selection as a comparison of ranks; None if it is something else."""
    (output,) = plan.outputs
    rules = [r for r in plan.rules if r.head.relation == output.relation]
    if len(rules) != 1 or len(rules[0].body) != 1 or rules[0].functions:
        return None
    (rule,) = rules
    value = rule.body[0]
    if not isinstance(value, nodes.Apply) or value.function.name not in SIGNS or value.weight:
        return None
    own = [_variables(side) for side in value.operands]
    if not own[0] or not own[1] or {*own[0]} & {*own[1]}:
        return None
    left, right = (
        _side(plan, rule, side, names, suffix)
        for side, names, suffix in zip(value.operands, own, SIDES, strict=True)
    )
    return RankedComparison(SIGNS[value.function.name], rule.head, (left, right))


def by_ranks(plan: Plan, known: Mapping[str, RankedComparison]) -> Plan:
    """A plan that reads the ranks of comparisons; where one is negated, a relation of its own."""
    negated: set[str] = set()
    steps = []
    for step in plan.steps:
        assert isinstance(step, nodes.Rule)
        body: list[nodes.Expression] = []
        for at, item in enumerate(step.body):
            name = item.relation if isinstance(item, nodes.Atom) else ""
            if name not in known:
                body.append(item)
            elif isinstance(item, nodes.Atom) and not item.negated:
                body += known[name].conditions(item.terms, at)
            else:
                negated.add(name)
                body.append(item)
        steps.append(replace(step, body=tuple(body)))
    for name in sorted(negated):
        head = known[name].head
        steps.append(nodes.Rule(head, known[name].conditions(head.terms, 0), (), head.place))
    return replace(plan, steps=tuple(steps))


def _variables(value: nodes.Expression) -> tuple[nodes.Variable, ...]:
    names = assigned_variables(nodes.Rule(nodes.Atom(""), (value,)))
    return tuple(map(nodes.Variable, names))


def _terms(plan: Plan, relation: str) -> tuple[nodes.Term, ...]:
    return next(rule.head.terms for rule in plan.rules if rule.head.relation == relation)


def _side(
    plan: Plan,
    rule: nodes.Rule,
    value: nodes.Expression,
    names: tuple[nodes.Variable, ...],
    suffix: str,
) -> Plan:
    """The plan of one of the values."""
    head = replace(rule.head, relation=rule.head.relation + suffix, terms=names)
    rules = [*(r for r in plan.rules if r is not rule), nodes.Rule(head, (value,), (), rule.place)]
    wanted = reachable(needs(rules), [head.relation])
    terms = tuple(nodes.Variable(f"X{at}") for at in range(len(names)))
    return replace(
        plan,
        outputs=(nodes.Atom(head.relation, terms),),
        steps=tuple(r for r in rules if r.head.relation in wanted),
        facts=tuple(f for f in plan.facts if f.atom.relation in wanted),
        lines=tuple(line for line in plan.lines if line.relation in wanted),
    )
