"""Move a condition on the members of a family to the rules that multiply their weights.

    q(H, I) :- x(I)[W.q(H)].                     q(H, I) :- x(I)[W.q(H)], *alive(H).
    w(H, I, J) :- q(H, I), k(H, J), *alive(H).   w(H, I, J) :- q(H, I), k(H, J), *alive(H).

Of `q` only the heads that are alive are read: the others are not computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from edgewise.language import nodes
from edgewise.language.dependencies import needs, reachable
from edgewise.language.statements import aggregation_of, atoms, weights
from edgewise.language.terms import variables
from edgewise.passes.inlining import reads_all_rows
from edgewise.plan.nodes import Plan

Place = tuple[str, int]  # a relation of one term, and a position for whose keys it holds
Held = dict[str, frozenset[Place]]  # relation → what holds for all of its atoms


def push_conditions(plan: Plan) -> Plan:
    changed = True
    while changed:
        changed = False
        held = _held(plan)
        for relation, places in _read(plan, held).items():
            for condition, position in sorted(places - held.get(relation, frozenset())):
                pushed = _pushed(plan, relation, condition, position)
                if pushed is not None:
                    plan, changed = pushed, True
                    break
            if changed:
                break
    return plan


def _held(plan: Plan) -> Held:
    """What holds for every atom of derived relations, from their rules."""
    stated = {fact.atom.relation for fact in plan.facts}
    rules: dict[str, list[nodes.Rule]] = {}
    for rule in plan.rules:
        rules.setdefault(rule.head.relation, []).append(rule)
    held: Held = {}
    changed = True
    while changed:
        changed = False
        for relation, own in rules.items():
            if relation in stated:
                continue
            found = frozenset.intersection(*(_head_places(rule, held) for rule in own))
            changed |= found != held.get(relation, frozenset())
            held[relation] = found
    return held


def _head_places(rule: nodes.Rule, held: Held) -> frozenset[Place]:
    known = _conditions(rule, held)
    terms = enumerate(rule.head.terms)
    return frozenset(
        (condition, position)
        for position, term in terms
        if isinstance(term, nodes.Variable)
        for condition in known.get(term.name, ())
    )


def _conditions(rule: nodes.Rule, held: Held) -> dict[str, set[str]]:
    """Variable → the relations of one term that hold for it wherever the body holds."""
    found: dict[str, set[str]] = {}
    for atom in atoms(rule.body):
        if not isinstance(atom, nodes.Atom) or atom.negated:
            continue
        places = set(held.get(atom.relation, ()))
        places |= {(atom.relation, 0)} if atom.hidden and len(atom.terms) == 1 else set()
        for condition, position in places:
            term = atom.terms[position]
            if isinstance(term, nodes.Variable):
                found.setdefault(term.name, set()).add(condition)
    return found


def _read(plan: Plan, held: Held) -> dict[str, frozenset[Place]]:
    """Relation → what holds for all of its atoms that rules read."""
    found: dict[str, frozenset[Place]] = {}
    for rule in plan.rules:
        known = _conditions(rule, held)
        for atom in atoms(rule.body):
            if isinstance(atom, nodes.Atom):
                places = frozenset(_places(atom, known))
                found[atom.relation] = found.get(atom.relation, places) & places
    return found


def _places(atom: nodes.Atom, known: Mapping[str, set[str]]) -> Iterator[Place]:
    for position, term in enumerate(atom.terms):
        if isinstance(term, nodes.Variable):
            yield from ((condition, position) for condition in known.get(term.name, ()))


def _pushed(plan: Plan, relation: str, condition: str, position: int) -> Plan | None:
    """The plan with the condition in all rules of a relation, where nothing else reads it."""
    own = [rule for rule in plan.rules if rule.head.relation == relation]
    others = {fact.atom.relation for fact in plan.facts} | {line.relation for line in plan.lines}
    behind = reachable(needs(plan.rules), [condition])
    if not own or relation in others | plan.wanted | {condition} or relation in behind:
        return None
    if relation in reachable(needs(plan.rules), needs(own)[relation]):
        return None  # recursive
    if not all(_takes(plan, rule, position) for rule in own):
        return None
    steps = []
    for step in plan.steps:
        if isinstance(step, nodes.Rule) and step in own:
            atom = nodes.Atom(condition, (step.head.terms[position],), hidden=True)
            step = replace(step, body=(*step.body, atom))
        steps.append(step)
    return replace(plan, steps=tuple(steps), pushed=plan.pushed | {(relation, condition)})


def _takes(plan: Plan, rule: nodes.Rule, position: int) -> bool:
    """Whether a rule multiplies weights of the members, each alone."""
    term = rule.head.terms[position]
    if not isinstance(term, nodes.Variable) or reads_all_rows(rule):
        return False
    together = dict(aggregation_of(rule, plan.aggregation).arguments).get("agg_terms") or ()
    keys = {v.name for weight in weights(rule) for v in variables(weight.keys)}
    return term.name in keys and term.name not in together
