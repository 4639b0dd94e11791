"""Readers: what a caller gives for one relation becomes one of the kinds of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.inputs.kinds import BadInput, Input, numbers, ragged, refuse_layout, rows


def read_one(name: str, item: Any, arity: int) -> Input:
    """An input as a tensor of values, rows, or a batch of those."""
    if isinstance(item, numbers):
        return item.on(name, arity)
    if isinstance(item, ragged):
        return ragged([_sample(name, sample, arity) for sample in item.samples])
    if isinstance(item, rows):
        return item
    for reader in READERS:
        found = reader(name, item)
        if found is not None:
            return found
    raise BadInput(
        f"`{name}` was given a {type(item).__name__}",
        caller(),
        "give a float tensor (dense), an integer tensor (keys), `rows(...)`, `ragged([...])` or "
        "a networkx graph",
    )


def _sample(name: str, item: Any, arity: int) -> rows | Tensor:
    if isinstance(item, numbers):
        raise BadInput(
            f"a sample of `{name}` is `numbers`",
            caller(),
            "pad the samples to one length, `numbers(padded)`, and give the padding as a mask",
        )
    found = read_one(name, item, arity)
    if isinstance(found, ragged):
        raise BadInput(
            f"a sample of `{name}` is itself a batch", caller(), "one batch holds plain samples"
        )
    return found


def tensor(name: str, item: Any) -> Tensor | rows | None:
    """Real numbers are values, integers are keys."""
    if not isinstance(item, Tensor):
        return None
    refuse_layout(item, f"`{name}`")
    if item.is_complex():
        raise BadInput(f"`{name}` has complex numbers", caller(), "give real ones")
    return item if item.is_floating_point() else rows(item)


def array(name: str, item: Any) -> Tensor | rows | None:
    """What has numpy's `__array__`, read as a tensor."""
    if not (hasattr(item, "__array__") and hasattr(item, "dtype")):
        return None
    try:
        # writes into an array could not be seen: its numbers of now are taken
        return tensor(name, torch.as_tensor(item).clone())
    except (TypeError, ValueError):
        raise BadInput(
            f"`{name}` is an array of {item.dtype}", caller(), "give numbers: floats or integers"
        ) from None


def networkx_graph(name: str, graph: Any) -> rows | None:
    """The edges of a networkx graph; an undirected one has each edge both ways."""
    if not (hasattr(graph, "edges") and hasattr(graph, "nodes")):
        return None
    ends = [(_integer(a), _integer(b)) for a, b in graph.edges()]
    pairs = [(a, b) for a, b in ends if a is not None and b is not None]
    if len(pairs) != graph.number_of_edges():
        raise BadInput(
            f"the nodes of the graph for `{name}` are not integers",
            caller(),
            "relabel them: `networkx.convert_node_labels_to_integers(graph)`",
        )
    if not graph.is_directed():
        pairs = sorted({(a, b) for a, b in pairs} | {(b, a) for a, b in pairs})
    return rows(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T)


def _integer(node: Any) -> int | None:
    """A node that is an integer, also one of numpy's; True and False are not."""
    if isinstance(node, bool) or not hasattr(node, "__index__") or hasattr(node, "__len__"):
        return None
    return int(node)


# in this order: each gives None for what it does not read
READERS: tuple[Callable[[str, Any], Tensor | rows | None], ...] = (tensor, array, networkx_graph)
