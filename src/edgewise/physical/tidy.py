"""Values that nobody reads, and outputs that must be the caller's own."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

VIEWS: set[Any] = {"reshape", "transpose", "permute", "expand", "to", "narrow", "split", "unbind"}
VIEWS |= {"chunk", "expand_as", operator.getitem}
RANDOM = {torch.bernoulli, torch.nn.functional.dropout, torch.randint}


def tidy(graph: Graph) -> None:
    """No values that nobody reads, and an output that is no part of what the graph reads."""
    _own_output(graph)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output") and _is_pure(node):
            graph.erase_node(node)


def _is_pure(node: Node) -> bool:
    """Whether a value that nobody reads need not be computed: it draws no random numbers."""
    return node.op == "get_attr" or node.target not in RANDOM


def _own_output(graph: Graph) -> None:
    """Copy an output that is a view of what the graph is given or holds: callers write into it."""
    last = graph.output_node()
    made: Any = last.args[0]
    node = made
    if not isinstance(made, Node):
        return  # of a part, whose values stay inside
    while node.target in VIEWS and node.op not in ("placeholder", "get_attr"):
        node = node.all_input_nodes[0]
    if node.op in ("placeholder", "get_attr"):
        with graph.inserting_before(last):
            copy = graph.call_method("clone", (made,))
            copy.meta.update(made.meta)
        last.args = (copy,)
