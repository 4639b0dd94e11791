"""Rules that differ in one relation of facts and its weight: one rule, one gather of weights.

`h(A) <= c(A)[W_c]`, `h(A) <= n(A)[W_n]`, ... become `h(A) <= kinds(K, A)[W(K)]`, where `kinds` has
the facts of all of them and `W` is their weights stacked, which keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgewise.functions import Law
from edgewise.ground.index import index_of
from edgewise.ground.source import Source
from edgewise.language import functions, nodes
from edgewise.language.statements import combination
from edgewise.plan.nodes import Plan

Stacks = Mapping[str, tuple[str, ...]]  # name of a family → the weights that are its members


@dataclass(frozen=True)
class _Form:
    """What rules of one stack have in common."""

    head: nodes.Atom
    functions: tuple[nodes.Function, ...]
    terms: tuple[nodes.Term, ...]
    shape: tuple[int, ...]


def stacked(
    plan: Plan, facts: Mapping[str, Source], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Plan, dict[str, Source], Stacks]:
    """The plan with one rule for each stack, the facts that those read, and their weights."""
    groups: dict[_Form, list[nodes.Rule]] = {}
    for rule in plan.steps:
        form = _form(plan, rule, facts, shapes) if isinstance(rule, nodes.Rule) else None
        if form is not None and isinstance(rule, nodes.Rule):
            groups.setdefault(form, []).append(rule)
    several = {form: rules for form, rules in groups.items() if len(rules) > 1}
    if not several:
        return plan, {}, {}
    sources: dict[str, Source] = {}
    stacks: dict[str, tuple[str, ...]] = {}
    replaced: dict[nodes.Rule, nodes.Rule | None] = {}
    domains = list(plan.domains)
    for form, rules in several.items():
        name = f"@{form.head.relation}{len(stacks) or ''}"
        atoms = [_atom(rule) for rule in rules]
        sources[name] = _together([facts[atom.relation] for atom in atoms])
        stacks[name] = tuple(str(atom.weight.name) for atom in atoms if atom.weight is not None)
        domains.append((name, len(rules)))
        kind = nodes.Variable(name)
        weight = nodes.Weight(name, (kind,), form.shape)
        atom = nodes.Atom(name, (kind, *form.terms), weight, place=rules[0].place)
        listed = [f for f in form.functions if functions.kind(f) != functions.AGGREGATION]
        summed = (*listed, nodes.Function("sum_agg"))
        replaced |= dict.fromkeys(rules)
        replaced[rules[0]] = replace(rules[0], body=(atom,), functions=summed)
    found = (replaced.get(step, step) for step in plan.steps)  # type: ignore[arg-type]
    steps = tuple(step for step in found if step is not None)
    return replace(plan, steps=steps, domains=tuple(domains)), sources, stacks


def with_stacks(weights: Mapping[str, Tensor], stacks: Stacks) -> Mapping[str, Tensor]:
    """The weights, and those of each stack as one tensor."""
    made = {name: torch.stack([weights[n] for n in names]) for name, names in stacks.items()}
    return {**weights, **made} if made else weights


def _form(
    plan: Plan, rule: nodes.Rule, facts: Mapping[str, Source], shapes: Mapping[str, tuple[int, ...]]
) -> _Form | None:
    """What a rule is like if it multiplies the facts of a relation by a weight, else None."""
    if len(rule.body) != 1 or not isinstance(rule.body[0], nodes.Atom):
        return None
    atom, head = rule.body[0], rule.head
    weight, source = atom.weight, facts.get(atom.relation)
    if weight is None or weight.keys or head.weight is not None or not atom.carries_value:
        return None
    names = [t.name for t in atom.terms if isinstance(t, nodes.Variable)]
    once = len(set(names)) == len(atom.terms) and set(atom.terms) == set(head.terms)
    if source is None or not once or len(head.terms) != len(names):
        return None
    constant = source.stored is not None and source.live is None
    if not constant or source.shape or source.weights or not source.index.rows:
        return None
    own = [f for f in rule.functions if functions.kind(f) == functions.AGGREGATION]
    line = next((line for line in plan.lines if line.relation == head.relation), None)
    sums = combination(line.functions if line is not None else ()).name == "sum"
    aggregation = (own or [plan.aggregation])[0]
    if Law.KEEPS_ONE not in functions.definition(aggregation) or not sums:
        return None
    return _Form(head, rule.functions, atom.terms, shapes[str(weight.name)])


def _atom(rule: nodes.Rule) -> nodes.Atom:
    atom = rule.body[0]
    assert isinstance(atom, nodes.Atom)
    return atom


def _together(sources: list[Source]) -> Source:
    """The rows of several relations of facts, each with the number of its relation before its key.

    Rows of one relation are in key order, so all of them are.
    """
    tables, values = [], []
    for number, source in enumerate(sources):
        first = torch.full((source.index.rows, 1), number)
        tables.append(torch.cat([first, source.index.keys], 1))
        assert source.stored is not None
        values.append(source.stored)
    return Source(index_of(torch.cat(tables)), stored=torch.cat(values))
