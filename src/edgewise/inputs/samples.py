"""A batch is one more key: rules over ragged samples get a variable for the sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from edgewise.errors import EdgewiseError, caller
from edgewise.ground.body import SAMPLE, SAMPLES
from edgewise.ground.source import Source
from edgewise.inputs.facts import FactTables
from edgewise.inputs.kinds import Input, ragged
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.plan.nodes import Plan, Step, rewrite


class BatchMismatch(EdgewiseError):
    """The samples of a batch are matched one to one; none is repeated or left out."""

    code = "batch-mismatch"
    example = (
        "Program([R.h(V.X) <= (R.a(V.X), R.b(V.X))]).compile(R.h)"
        "(a=ragged([torch.ones(3)]), b=ragged([torch.ones(3), torch.ones(2)]))"
    )
    instead = (
        "Program([R.h(V.X) <= (R.a(V.X), R.b(V.X))]).compile(R.h)"
        "(a=ragged([torch.ones(3), torch.ones(2)]), b=ragged([torch.ones(3), torch.ones(2)]))"
    )


def count_samples(inputs: Mapping[str, Input], facts: FactTables | None) -> int | None:
    counts = {name: len(item.samples) for name, item in inputs.items() if isinstance(item, ragged)}
    if facts is not None and facts.samples is not None:
        counts["facts"] = facts.samples
    _refuse_counts(counts)
    return next(iter(counts.values()), None)


def check_batches(sources: Mapping[str, Source], samples: int | None) -> None:
    """One batch has one size; an axis of length 1 is a batch of one, never repeated."""
    counts = {name: s.batch for name, s in sources.items() if s.batched}
    _refuse_counts(counts if samples is None else {"the ragged samples": samples} | counts)


def _refuse_counts(counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise BatchMismatch(
            f"the inputs have different numbers of samples ({shown})",
            caller(),
            "give every batched input one item for each sample",
        )


def batched_relations(rules: Iterable[nodes.Rule], inputs: Iterable[str]) -> set[str]:
    """The relations that differ between samples: ragged inputs and what is derived from them."""
    found, rules = set(inputs), list(rules)
    changed = True
    while changed:
        changed = False
        for rule in rules:
            reads = {a.relation for a in atoms(rule) if isinstance(a, nodes.Atom)}
            if rule.head.relation not in found and reads & found:
                found.add(rule.head.relation)
                changed = True
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
    output = plan.output
    if output.relation in in_batch:
        output = replace(output, terms=(SAMPLE, *output.terms))
    lines = tuple(with_sample(line, in_batch) for line in plan.lines)
    steps = tuple(_batched_step(step, in_batch) for step in plan.steps)
    return replace(plan, output=output, steps=steps, lines=lines)


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
