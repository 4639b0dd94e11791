"""Inline a rule over pairs into the one rule that reads it."""

from __future__ import annotations

from dataclasses import replace

from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.statements import aggregation_of, atoms, weights
from edgewise.language.terms import variables
from edgewise.passes.inlining import (
    derived_by_one_rule,
    inlined_into,
    keeps_domains,
    reads_all_rows,
)
from edgewise.plan.nodes import Plan


def inline_pairs(plan: Plan) -> Plan:
    changed = True
    while changed:
        changed = False
        callers = _only_callers(plan)
        for rule in plan.rules:
            caller = callers.get(rule.head.relation)
            if caller is None or caller is rule or not _is_inlinable(plan, rule):
                continue
            if keeps_domains(caller, rule, plan.domains):
                inlined = inlined_into(caller, rule)
                steps = tuple(inlined if s is caller else s for s in plan.steps if s is not rule)
                plan, changed = replace(plan, steps=steps), True
                break
    return plan


def _is_inlinable(plan: Plan, rule: nodes.Rule) -> bool:
    """One grounding per head, nothing but an expression over at least two atoms."""
    names = [v.name for v in variables(rule.head.terms)]
    body = {v.name for a in atoms(rule.body) for v in variables(a.terms)}
    body |= {v.name for w in weights(rule) for v in variables(w.keys)}
    aggregation = aggregation_of(rule, plan.aggregation)
    carrying = {
        (a.relation) for a in atoms(rule.body) if isinstance(a, nodes.Atom) and a.carries_value
    }
    return (
        len(names) >= 2
        and len(set(names)) == len(rule.head.terms)
        and body == set(names)
        and Law.KEEPS_ONE in functions.definition(aggregation)
        and len(carrying) >= 2
        and not reads_all_rows(rule)
    )


def _only_callers(plan: Plan) -> dict[str, nodes.Rule]:
    """Relation → the one rule that reads it, once and as a value."""
    uses: dict[str, list[tuple[nodes.Rule, nodes.Atom]]] = {}
    for caller in plan.rules:
        for atom in atoms(caller.body):
            if isinstance(atom, nodes.Atom):
                uses.setdefault(atom.relation, []).append((caller, atom))
    alone = derived_by_one_rule(plan)
    return {
        name: found[0][0]
        for name, found in uses.items()
        if name in alone and len(found) == 1 and found[0][1].carries_value
    }
