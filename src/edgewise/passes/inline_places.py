"""Inline a function of positions into every score that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.specials import computes
from edgewise.language.statements import aggregation_of, atoms, weights
from edgewise.language.terms import variables
from edgewise.passes.inlining import (
    derived_by_one_rule,
    inlined_into,
    keeps_domains,
    reads_all_rows,
)
from edgewise.plan.nodes import Plan
from edgewise.plan.score import is_softmax


def inline_places(plan: Plan) -> Plan:
    for callee in plan.rules:
        callers = _scores(plan, callee)
        fine = (
            callers and _is_of_places(plan, callee) and all(_fits(plan, u, callee) for u in callers)
        )
        if fine and all(keeps_domains(caller, callee, plan.domains) for caller in callers):
            made = {id(caller): inlined_into(caller, callee) for caller in callers}
            steps = tuple(made.get(id(s), s) for s in plan.steps if s is not callee)
            plan = replace(plan, steps=steps)
    return plan


def _scores(plan: Plan, callee: nodes.Rule) -> list[nodes.Rule]:
    """The rules that read a callee, if all of them are softmaxes that read it once, as a value."""
    relation = callee.head.relation
    uses = [
        (rule, atom)
        for rule in plan.rules
        for atom in atoms(rule.body)
        if isinstance(atom, nodes.Atom) and atom.relation == relation
    ]
    callers = [rule for rule, _ in uses]
    alone = len({id(rule) for rule in callers}) == len(callers)
    fine = all(atom.carries_value and is_softmax(rule, plan.aggregation) for rule, atom in uses)
    return callers if alone and fine else []


def _is_of_places(plan: Plan, rule: nodes.Rule) -> bool:
    """One grounding for each head, whose value counts with places or is chosen by them."""
    terms = rule.head.terms
    names = {v.name for v in variables(terms)}
    specials = [a for a in atoms(rule.body) if isinstance(a, nodes.SpecialAtom)]
    read = [a for a in atoms(rule.body) if isinstance(a, nodes.Atom)]
    return (
        rule.head.relation in derived_by_one_rule(plan)
        and len(names) == len(terms) >= 2
        and any(len(names & {v.name for v in variables(a.terms)}) > 1 for a in specials)
        and not any(isinstance(a, nodes.PatternAtom) for a in atoms(rule.body))
        and all(a.hidden and not a.negated and len(a.terms) == 1 for a in read if a.terms)
        and _variables(rule) == names | _computed(specials, names)
        and Law.KEEPS_ONE in functions.definition(aggregation_of(rule, plan.aggregation))
        and not reads_all_rows(rule)
    )


def _variables(rule: nodes.Rule) -> set[str]:
    found = {v.name for a in atoms(rule.body) for v in variables(a.terms)}
    return found | {v.name for w in weights(rule) for v in variables(w.keys)}


def _computed(specials: Sequence[nodes.SpecialAtom], names: set[str]) -> set[str]:
    """The variables that arithmetic gives one value, from those known."""
    known, before = set(names), -1
    while len(known) != before:
        before = len(known)
        for atom in specials:
            free = [
                p
                for p, t in enumerate(atom.terms)
                if isinstance(t, nodes.Variable) and t.name not in known
            ]
            if len(free) == 1 and free[0] in computes(atom) and not atom.negated:
                known |= {v.name for v in variables(atom.terms)}
    return known - names


def _fits(plan: Plan, caller: nodes.Rule, callee: nodes.Rule) -> bool:
    """Whether the variables of its weights have the same domains where it is written to."""
    place = next(
        a
        for a in atoms(caller.body)
        if isinstance(a, nodes.Atom) and a.relation == callee.head.relation
    )
    if len({v.name for v in variables(place.terms)}) != len(place.terms):
        return False
    if any(functions.kind(f) == functions.COMBINATION for f in caller.functions if f.name != "sum"):
        return False
    pairs = zip(variables(callee.head.terms), variables(place.terms), strict=True)
    names = {old.name: new.name for old, new in pairs}
    taken = _variables(caller) | {v.name for v in variables(caller.head.terms)}
    if taken & (_variables(callee) - set(names)):
        return False  # a variable of its own has the name of another
    domains = dict(plan.domains)
    keys = {v.name for w in weights(callee) for v in variables(w.keys)}
    return all(domains.get(names.get(k, k)) == domains.get(k) for k in keys)
