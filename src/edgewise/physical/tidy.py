"""Values that nobody reads, and outputs that must be the caller's own."""

from __future__ import annotations

import operator
from typing import Any

from torch.fx import Graph, Node

from edgewise.physical.symbols import is_pure

VIEWS: set[Any] = {"reshape", "transpose", "permute", "expand", "to", "narrow", "split", "unbind"}
VIEWS |= {"chunk", "expand_as", operator.getitem}


def tidy(graph: Graph) -> None:
    """No values that nobody reads, and an output that is no part of what the graph reads."""
    _own_output(graph)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output") and is_pure(node):
            graph.erase_node(node)


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
