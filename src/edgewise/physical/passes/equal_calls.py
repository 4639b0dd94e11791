"""Equal calls: what is computed twice from the same values is computed once."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node
from torch.nn.functional import linear

from edgewise.layouts.recorded import key_of, one_call
from edgewise.physical.lowering import Lowering

FUNCTIONS = {torch.cat, linear, operator.getitem}  # others may draw random numbers
FRESH = ("new_", "clone", "bernoulli", "multinomial")  # memory of their own, or random numbers


def merge_equal_calls(plan: Lowering) -> int:
    """f(x), f(x) → one f(x): calls of one function with equal arguments, indices by their numbers.

    A value that is changed in place, and what reads it, stays as it is.
    """
    nodes = [*plan.graph.nodes]
    constants = _equal_constants(plan, nodes)
    changing = {node.args[0] for node in nodes if _is_in_place(node)}
    known: dict[Hashable, Node] = {}
    changed = 0
    for node in nodes:
        if node._erased or not _is_function(node):
            continue
        if node in changing or not changing.isdisjoint(node.all_input_nodes):
            continue
        key = node.target, _key(node.args, constants), _key(node.kwargs, constants)
        first = known.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            plan.erase(node)
            changed += 1
    return changed


def _is_function(node: Node) -> bool:
    """Whether a call gives the same for the same arguments, outside recursions."""
    step = node.meta.get("of")
    if step is not None and step.recursive:
        return False
    if node.op == "call_function":
        return node.target in FUNCTIONS
    return node.op == "call_method" and not str(node.target).startswith(FRESH)


def _is_in_place(node: Node) -> bool:
    name = str(node.target)
    return node.op == "call_method" and name.endswith("_") and not name.endswith("__")


def _key(argument: Any, constants: dict[Node, Node]) -> Hashable:
    match argument:
        case Node():
            return constants.get(argument, argument)
        case tuple() | list():
            return type(argument), tuple(_key(part, constants) for part in argument)
        case dict():
            return tuple((name, _key(part, constants)) for name, part in argument.items())
    argument = key_of(argument)
    return type(argument), repr(argument)  # 0.0 is not -0.0


def _equal_constants(plan: Lowering, nodes: list[Node]) -> dict[Node, Node]:
    """Each list of integers, and the first one that has the same."""
    lists = [(node, plan.constants[str(node.target)]) for node in nodes if node.op == "get_attr"]
    lists = [(n, x) for n, x in lists if isinstance(x, Tensor) and not x.is_floating_point()]
    kinds: dict[Hashable, list[tuple[Node, Tensor]]] = {}
    for node, x in lists:
        kinds.setdefault((x.dtype, *map(key_of, x.shape)), []).append((node, x))
    found: dict[Node, Node] = {}
    for alike in kinds.values():
        if len(alike) > 1:
            tensors = [x for _, x in alike]
            key = ("equal", *map(id, tensors))
            firsts = plan.analyse(key, partial(_firsts, tensors), *tensors)
            found |= {node: alike[at][0] for (node, _), at in zip(alike, firsts, strict=True)}
    return found


@one_call
def _firsts(tensors: list[Tensor]) -> list[int]:
    """For each list of integers the place of the first one that has the same."""
    arrays = [x.cpu().numpy() for x in tensors]
    known: dict[int, list[int]] = {}  # those with one sum are compared
    firsts = []
    for at, one in enumerate(arrays):
        others = known.setdefault(int(one.sum()), [])
        same = (other for other in others if np.array_equal(arrays[other], one))
        firsts.append(next(same, at))
        if firsts[-1] == at:
            others.append(at)
    return firsts
