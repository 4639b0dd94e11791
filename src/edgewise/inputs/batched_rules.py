"""Rules of one sample as rules of a batch: the sample is the first key of what differs in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from edgewise.ground.joins.body import SAMPLE, SAMPLES
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.plan.nodes import Plan, Step, rewrite


def batched_relations(rules: Iterable[nodes.Rule], inputs: Iterable[str]) -> set[str]:
    """The relations that differ between samples: ragged inputs and what is derived from them."""
    return closure(
        rules,
        inputs,
        lambda rule, found: any(
            isinstance(a, nodes.Atom) and a.relation in found for a in atoms(rule)
        ),
    )


def closure(
    rules: Iterable[nodes.Rule],
    start: Iterable[str],
    follows: Callable[[nodes.Rule, set[str]], bool],
) -> set[str]:
    """Some relations, and the heads of rules that follow from those found, until none is new."""
    found, waiting, count = set(start), list(rules), -1
    while count != len(found):
        count, open_rules, waiting = len(found), waiting, []
        for rule in open_rules:
            if rule.head.relation in found:
                continue
            if follows(rule, found):
                found.add(rule.head.relation)
            else:
                waiting.append(rule)
    return found


def with_sample(node: Any, batched: set[str]) -> Any:
    """The same rule with the sample as the first term of every batched atom.

    >>> from edgewise.language import R, V
    >>> with_sample(R.h(V.X) <= (R.a(V.X), R.w), {"h", "a"})
    R.h(V["@sample"], V.X) <= (R.a(V["@sample"], V.X), R.w)
    """
    match node:
        case tuple():
            return tuple(with_sample(item, batched) for item in node)
        case nodes.Atom(relation=relation) if relation in batched:
            return replace(node, terms=(SAMPLE, *node.terms))
        case nodes.PatternAtom():
            return replace(node, terms=(SAMPLE, *node.terms))
        case nodes.Apply():
            return replace(node, operands=with_sample(node.operands, batched))
        case nodes.Rule(head=head) if head.relation in batched:
            return replace(
                node, head=with_sample(head, batched), body=with_sample(node.body, batched)
            )
        case nodes.Line(relation=relation) if relation in batched:
            return replace(node, arity=node.arity + 1)
    return node


def batched_plan(plan: Plan, in_batch: set[str]) -> Plan:
    outputs = tuple(with_sample(output, in_batch) for output in plan.outputs)
    lines = tuple(with_sample(line, in_batch) for line in plan.lines)
    steps = tuple(_batched_step(step, in_batch) for step in plan.steps)
    return replace(plan, outputs=outputs, steps=steps, lines=lines)


def _batched_step(step: Step, in_batch: set[str]) -> Step:
    if isinstance(step, nodes.Rule):
        return _batched_rule(step, in_batch)
    score, total = (_batched_rule(rule, in_batch) for rule in step.replaces)
    found = rewrite(step, lambda part: with_sample(part, in_batch))
    return replace(found, replaces=(score, total))


def _batched_rule(rule: nodes.Rule, in_batch: set[str]) -> nodes.Rule:
    batched: nodes.Rule = with_sample(rule, in_batch)
    if rule.head.relation in in_batch and not any(
        isinstance(a, nodes.Atom) and not a.negated and SAMPLE in a.terms
        for a in atoms(batched.body)
    ):
        everywhere = nodes.Atom(SAMPLES, (SAMPLE,), hidden=True)
        batched = replace(batched, body=(*batched.body, everywhere))
    return batched
