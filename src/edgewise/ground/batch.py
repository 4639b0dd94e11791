"""A batch is one more key: rules over ragged samples get a variable for the sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from edgewise.language import nodes
from edgewise.language.statements import atoms

SAMPLE = nodes.Variable("@sample")
SAMPLES = "@samples"  # the relation that holds for every sample


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
