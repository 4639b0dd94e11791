"""Write a helper over pairs into the one rule that uses it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import variables
from edgewise.passes.inlined import inlined_into, keeps_domains
from edgewise.plan.nodes import Plan


def inline_pairs(plan: Plan) -> Plan:
    changed = True
    while changed:
        changed = False
        users = _only_users(plan)
        for rule in plan.rules:
            user = users.get(rule.head.relation)
            if user is None or user is rule or not _is_helper(plan, rule):
                continue
            if keeps_domains(user, rule, plan.domains):
                inlined = inlined_into(user, rule)
                steps = tuple(inlined if s is user else s for s in plan.steps if s is not rule)
                plan, changed = replace(plan, steps=steps), True
                break
    return plan


def _is_helper(plan: Plan, rule: nodes.Rule) -> bool:
    """One grounding per head, nothing but an expression over at least two atoms."""
    names = [v.name for v in variables(rule.head.terms)]
    body = {v.name for a in atoms(rule.body) for v in variables(a.terms)}
    body |= {v.name for w in weights(rule) for v in variables(w.keys)}
    aggregation = next(
        (f for f in rule.functions if functions.kind(f) == functions.AGGREGATION), plan.aggregation
    )
    carrying = {
        (a.relation) for a in atoms(rule.body) if isinstance(a, nodes.Atom) and a.carries_value
    }
    return (
        len(names) >= 2
        and len(set(names)) == len(rule.head.terms)
        and body == set(names)
        and Law.KEEPS_ONE in functions.definition(aggregation)
        and len(carrying) >= 2
        and not any(Law.RANDOM in functions.definition(f) for f in rule.functions)
    )


def _only_users(plan: Plan) -> dict[str, nodes.Rule]:
    """Relation → the one rule that reads it once, as a value; without those with more to them."""
    uses: dict[str, list[tuple[nodes.Rule, nodes.Atom]]] = {}
    for user in plan.rules:
        for atom in atoms(user.body):
            if isinstance(atom, nodes.Atom):
                uses.setdefault(atom.relation, []).append((user, atom))
    heads = Counter(rule.head.relation for rule in plan.rules)
    more = {plan.output.relation, *(line.relation for line in plan.lines)}
    more |= {fact.atom.relation for fact in plan.facts}
    more |= {name for part in components(needs(plan.rules)) if len(part) > 1 for name in part}
    return {
        name: found[0][0]
        for name, found in uses.items()
        if heads[name] == 1 and name not in more and len(found) == 1 and found[0][1].carries_value
    }
