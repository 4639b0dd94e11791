"""Write what only places decide into every score that reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.specials import SPECIALS
from edgewise.language.statements import aggregation_of, atoms, weights
from edgewise.language.terms import variables
from edgewise.passes.inlined import inlined_into, keeps_domains
from edgewise.plan.nodes import Plan
from edgewise.plan.score import is_softmax


def inline_places(plan: Plan) -> Plan:
    for helper in plan.rules:
        users = _scores(plan, helper)
        fine = users and _is_of_places(plan, helper) and all(_fits(plan, u, helper) for u in users)
        if fine and all(keeps_domains(user, helper, plan.domains) for user in users):
            made = {id(user): inlined_into(user, helper) for user in users}
            steps = tuple(made.get(id(s), s) for s in plan.steps if s is not helper)
            plan = replace(plan, steps=steps)
    return plan


def _scores(plan: Plan, helper: nodes.Rule) -> list[nodes.Rule]:
    """The rules that read a helper, if all of them are softmaxes that read it once, as a value."""
    relation = helper.head.relation
    uses = [
        (rule, atom)
        for rule in plan.rules
        for atom in atoms(rule.body)
        if isinstance(atom, nodes.Atom) and atom.relation == relation
    ]
    users = [rule for rule, _ in uses]
    alone = len({id(rule) for rule in users}) == len(users)
    fine = all(atom.carries_value and is_softmax(rule, plan.aggregation) for rule, atom in uses)
    return users if alone and fine else []


def _is_of_places(plan: Plan, rule: nodes.Rule) -> bool:
    """One grounding for each head, whose value counts with places or is chosen by them."""
    relation, terms = rule.head.relation, rule.head.terms
    names = {v.name for v in variables(terms)}
    more = {plan.output.relation, *(line.relation for line in plan.lines)}
    more |= {fact.atom.relation for fact in plan.facts}
    more |= {name for part in components(needs(plan.rules)) if len(part) > 1 for name in part}
    heads = Counter(r.head.relation for r in plan.rules)
    specials = [a for a in atoms(rule.body) if isinstance(a, nodes.SpecialAtom)]
    read = [a for a in atoms(rule.body) if isinstance(a, nodes.Atom)]
    return (
        heads[relation] == 1
        and relation not in more
        and len(names) == len(terms) >= 2
        and any(len(names & {v.name for v in variables(a.terms)}) > 1 for a in specials)
        and not any(isinstance(a, nodes.PatternAtom) for a in atoms(rule.body))
        and all(a.hidden and not a.negated and len(a.terms) == 1 for a in read if a.terms)
        and _variables(rule) == names | _computed(specials, names)
        and Law.KEEPS_ONE in functions.definition(aggregation_of(rule, plan.aggregation))
        and not any(Law.RANDOM in functions.definition(f) for f in rule.functions)
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
            can = {p % len(atom.terms) for p in SPECIALS[atom.name].computes}
            if len(free) == 1 and free[0] in can and not atom.negated:
                known |= {v.name for v in variables(atom.terms)}
    return known - names


def _fits(plan: Plan, user: nodes.Rule, helper: nodes.Rule) -> bool:
    """Whether the variables of its weights have the same domains where it is written to."""
    place = next(
        a
        for a in atoms(user.body)
        if isinstance(a, nodes.Atom) and a.relation == helper.head.relation
    )
    if len({v.name for v in variables(place.terms)}) != len(place.terms):
        return False
    if any(functions.kind(f) == functions.COMBINATION for f in user.functions if f.name != "sum"):
        return False
    pairs = zip(variables(helper.head.terms), variables(place.terms), strict=True)
    names = {old.name: new.name for old, new in pairs}
    taken = _variables(user) | {v.name for v in variables(user.head.terms)}
    if taken & (_variables(helper) - set(names)):
        return False  # a variable of its own has the name of another
    domains = dict(plan.domains)
    keys = {v.name for w in weights(helper) for v in variables(w.keys)}
    return all(domains.get(names.get(k, k)) == domains.get(k) for k in keys)
