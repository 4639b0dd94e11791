"""Gains and biases of normalised rows as arguments of the norm."""

from __future__ import annotations

import math

from torch.fx import Node
from torch.nn.functional import layer_norm, rms_norm

from edgewise.physical.lowering import Lowering, input_node, is_weight


def fold_gains(plan: Lowering) -> int:
    """norm(x) · g + b → norm(x, g, b), for vectors that are weights."""
    changed = 0
    for norm, takes_bias in ((layer_norm, True), (rms_norm, False)):
        for node in plan.nodes(norm):
            size = node.meta["like"].shape[-1]
            if size == 1 or tuple(node.args[1]) != (size,):  # type: ignore[arg-type]
                continue
            if _fold(plan, node, "mul", "weight"):
                changed += 1
                if takes_bias:
                    _fold(plan, node, "add", "bias")
    return changed


def _fold(plan: Lowering, node: Node, method: str, name: str) -> bool:
    """Make the vector that the only user of a norm multiplies by, or adds, an argument of it."""
    (user, *others), like = node.users or [None], node.meta["like"]
    if user is None or others or user.target != method or len(user.all_input_nodes) != 2:
        return False
    sides = input_node(user, 0), input_node(user, 1)
    vector = sides[sides[0] is node]
    shape, kind = vector.meta["like"].shape, vector.meta["like"].dtype
    fits = (
        shape[-1:] == like.shape[-1:] and math.prod(shape) == like.shape[-1] and kind == like.dtype
    )
    if not (is_weight(vector) and fits and user.meta["like"].shape == like.shape):
        return False
    with plan.rewriting(node):
        held = input_node(vector, 0) if vector.target == "reshape" else vector
        row = plan.node(plan.lifted(plan.symbol(held).reshape(like.shape[-1])))
    node.kwargs = {**node.kwargs, name: row}
    user.replace_all_uses_with(node)
    plan.erase(user)
    return True
