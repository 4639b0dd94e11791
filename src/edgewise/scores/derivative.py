"""Derivatives of a score, as scores."""

from functools import lru_cache

from edgewise.scores.functions import FUNCTIONS, call
from edgewise.scores.nodes import ONE, ZERO, Call, Node


@lru_cache(maxsize=1024)
def derivative(node: Node, by: Node) -> Node:
    """d node / d by, where `by` is the dot product or an entry of a table.

    Floors, remainders and comparisons are steps: their derivative is 0.

    >>> from edgewise.scores.nodes import S
    >>> derivative(Call("mul", (S, S)), S)
    Call(function='add', operands=(Leaf(name='s'), Leaf(name='s')))
    """
    if node == by:
        return ONE
    if not isinstance(node, Call):
        return ZERO
    if node.function == "where":  # not a product with 0, which could meet an infinity
        condition, *cases = node.operands
        return call("where", condition, *(derivative(x, by) for x in cases))
    slopes = FUNCTIONS[node.function].slopes
    if slopes is None:
        return ZERO
    total: Node = ZERO
    for operand, slope in zip(node.operands, slopes(*node.operands), strict=True):
        total = call("add", total, call("mul", slope, derivative(operand, by)))
    return total
