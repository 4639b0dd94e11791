"""Variables of a rule replaced by other terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgewise.language import nodes


def substitute(node: Any, terms: Mapping[str, nodes.Term]) -> Any:
    """The same node with variables replaced, in atoms and in the keys of weights.

    >>> from edgewise.language import R, V
    >>> substitute(R.a(V.X, V.Y), {"X": 1})
    R.a(1, V.Y)
    """

    def go(item: Any) -> Any:
        return substitute(item, terms)

    match node:
        case tuple():
            return tuple(go(item) for item in node)
        case nodes.Variable():
            return terms.get(node.name, node)
        case nodes.Weight():
            return replace(node, keys=go(node.keys))
        case nodes.Atom() | nodes.SpecialAtom():
            return replace(node, terms=go(node.terms), weight=go(node.weight))
        case nodes.PatternAtom():
            return replace(node, terms=go(node.terms))
        case nodes.Apply():
            return replace(node, operands=go(node.operands), weight=go(node.weight))
        case nodes.Rule():
            return replace(node, head=go(node.head), body=go(node.body))
    return node
