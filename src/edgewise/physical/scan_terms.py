"""What nodes of a graph are to a loop over levels: terms of a sum, a line, a function."""

from __future__ import annotations

from inspect import unwrap

from torch.fx import Node

from edgewise.physical.functions import aggregate_segments

AGGREGATE = unwrap(aggregate_segments)


class NotScannedError(Exception):
    """Internal: why a recursion is computed level by level."""


def affine(node: Node) -> tuple[Node, float, float] | None:
    """alpha · a + beta, where a node is that of another and of numbers."""
    read = [arg for arg in node.args if isinstance(arg, Node)]
    if len(read) != 1 or node.kwargs:
        return None
    match node.target, node.args:
        case "neg", _:
            return read[0], -1.0, 0.0
        case (("add" | "__radd__"), (Node(), int() | float() as number)):
            return read[0], 1.0, float(number)
        case "sub", (Node(), int() | float() as number):
            return read[0], 1.0, -float(number)
        case (("rsub" | "__rsub__"), (Node(), int() | float() as number)):
            return read[0], -1.0, float(number)
        case (("mul" | "__rmul__"), (Node(), int() | float() as number)):
            return read[0], float(number), 0.0
    return None


def terms(node: Node) -> list[tuple[Node, float]] | None:
    """The terms of a sum with their signs; sums that nobody else reads are taken apart. None for
    what is no sum of values."""
    left, right = node.args[0], node.args[1]
    if node.kwargs or not isinstance(left, Node) or not isinstance(right, Node):
        return None
    sign = -1.0 if node.target == "sub" else 1.0
    return [*_inner(left, node, 1.0), *_inner(right, node, sign)]


def _inner(node: Node, total: Node, sign: float) -> list[tuple[Node, float]]:
    like, own = total.meta["like"], node.meta["like"]
    if node.target in ("add", "sub") and len(node.users) == 1 and own.shape[2:] == like.shape[2:]:
        found = terms(node)
        if found is not None:
            return [(n, s * sign) for n, s in found]
    return [(node, sign)]
