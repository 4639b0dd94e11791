"""Heads and samples with graphs of their own: a call is split into one for each different graph."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.families import Family, per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.contract import TermInputs
from edgewise.kernels.attention.errors import BadOption, GraphLength

Graph = Pattern | per_head | per_sample
Index = list[int] | slice
VECTORS = ("edge_key", "edge_value")
NAMES = ("edge_bias", "edge_scale", *VECTORS)
OTHER = 0x2545F491  # seeds of samples lie far from those of heads, which lie 1 << 20 apart


class GraphPart(NamedTuple):
    """The heads or samples of one graph, the `number`-th part of a call."""

    at: list[int]
    graph: Any
    number: int

    def taken(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs, samples: bool
    ) -> tuple[Tensor, Tensor, Tensor, TermInputs]:
        """Its heads, or `samples`, of every tensor."""
        return (_of_samples if samples else _of_heads)(self, q, k, v, inputs)

    def seed(self, seed: int, samples: bool) -> int:
        """Other weights are dropped in each part."""
        return (seed + self.number * OTHER) % (1 << 31) if samples else seed + (self.number << 20)


def parts_of(graphs: Family[Any], *, alone: bool = False) -> list[GraphPart]:
    """Those with the same graph go together, or each is `alone`."""
    groups = [(graph, [at]) for at, graph in enumerate(graphs.patterns)]
    if not alone:
        members: dict[Any, list[int]] = {}
        for graph, at in groups:
            members.setdefault(graph, []).extend(at)
        groups = list(members.items())
    return [GraphPart(at, graph, number) for number, (graph, at) in enumerate(groups)]


def check_family(graph: Family[Any], q: Tensor) -> None:
    """One pattern for each head or sample."""
    if isinstance(graph, per_sample):
        if q.ndim != 4 or len(graph) != q.shape[0]:
            raise GraphLength(
                f"the graph has patterns for {len(graph)} samples, `q` has shape {tuple(q.shape)}",
                caller(),
                "give q, k and v as (batch, heads, tokens, features), one pattern per sample",
            )
        for one in graph.patterns:
            if isinstance(one, per_head):
                check_family(one, q)
    elif q.ndim < 3 or len(graph) != q.shape[-3]:
        heads = f"{q.shape[-3]} heads" if q.ndim > 2 else "no axis of heads"
        raise GraphLength(
            f"the graph has {len(graph)} patterns, `q` has {heads}",
            caller(),
            "give one pattern per query head",
        )


def expand_terms(inputs: TermInputs, shape: Callable[[Tensor, str, tuple[int, ...], Any], Tensor],
                 graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> TermInputs:  # fmt: skip
    """Every edge term of every graph in all of its axes, by `shape(term, name, axes, graph)`, where
    `axes` are those before the edges and, of a vector, its features behind them."""
    if isinstance(graph, Pattern):
        return inputs
    lead = tuple(q.shape[:-3]) if isinstance(graph, per_head) else ()
    tensors = (q, k, v)
    found = {
        name: _expanded(term, name, graph, lead, tensors, shape)
        for name, term in _edge_terms(inputs).items()
    }
    return inputs._replace(**found)


def _expanded(
    term: Any, name: str, graph: Any, lead: tuple[int, ...], tensors: tuple[Tensor, ...], shape: Any
) -> Any:
    if isinstance(graph, Pattern):
        return shape(term, name, lead, graph)
    _check_list(term, name, graph)
    q, k, _ = tensors
    heads = (k if is_vector(name) else q).shape[-3]
    wider = isinstance(graph, per_sample)
    return [
        _expanded(
            one_term,
            f"{name}[{at}]",
            one,
            (*lead, heads) if wider and isinstance(one, Pattern) else lead,
            tensors,
            shape,
        )
        for at, (one, one_term) in enumerate(zip(graph.patterns, term, strict=True))
    ]


def _edge_terms(inputs: TermInputs) -> dict[str, Any]:
    terms = {name: getattr(inputs, name) for name in NAMES}
    return {name: term for name, term in terms.items() if term is not None}


def is_vector(name: str) -> bool:
    return name.startswith(VECTORS)


def _check_list(term: Any, name: str, graph: Family[Any]) -> None:
    if isinstance(term, Tensor):
        raise BadOption(
            f"`{name}` is one tensor, but each {graph.each} has a graph with pairs of its own",
            caller(),
            f"give a list with a tensor for each of the {len(graph)} {graph.each}s",
        )
    if not isinstance(term, list | tuple) or len(term) != len(graph):
        count = f"{len(term)} terms" if isinstance(term, list | tuple) else type(term).__name__
        raise BadOption(
            f"`{name}` is {count}, the graph is of {len(graph)} {graph.each}s",
            caller(),
            f"give a list with a tensor for each {graph.each}",
        )


def _of_heads(
    part: GraphPart, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs
) -> tuple[Tensor, Tensor, Tensor, TermInputs]:
    heads, shared = part.at, q.shape[-3] // max(k.shape[-3], 1)
    index, keys = _index(heads), _index([head // shared for head in heads])
    terms = {
        name: torch.stack([each[head] for head in heads], -3 if name in VECTORS else -2)
        for name, each in _edge_terms(inputs).items()
    }
    inputs = inputs._replace(
        bias=_along(inputs.bias, index, 3),
        tables=tuple([_along(table, index, 2) for table in inputs.tables]),
        **terms,
    )
    return q[..., index, :, :], k[..., keys, :, :], v[..., keys, :, :], inputs


def _of_samples(
    part: GraphPart, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs
) -> tuple[Tensor, Tensor, Tensor, TermInputs]:
    index, lengths = _index(part.at), inputs.lengths
    terms = {
        name: _together(each, part.at, part.graph) for name, each in _edge_terms(inputs).items()
    }
    inputs = inputs._replace(
        bias=_along(inputs.bias, index, 4),
        tables=tuple([_along(table, index, 3) for table in inputs.tables]),
        lengths=None if lengths is None else lengths[index],
        **terms,
    )
    return q[index], k[index], v[index], inputs


def _together(each: Sequence[Any], samples: list[int], graph: Any) -> Any:
    """The terms of samples with one graph; where it is per head, a list of those of each head."""
    if not isinstance(graph, per_head):
        return torch.stack([each[sample] for sample in samples])
    return [torch.stack([each[b][head] for b in samples]) for head in range(len(graph))]


def _index(at: list[int]) -> Index:
    """Neighbours are a view."""
    if at == list(range(at[0], at[0] + len(at))):
        return slice(at[0], at[0] + len(at))
    return at


def _along(x: Any, index: Index, axis: int) -> Any:
    """Some of those along an axis, counted from the end, that may be missing or of length 1."""
    if x is None or x.ndim < axis or x.shape[-axis] == 1:
        return x
    return x[(..., index, *(slice(None),) * (axis - 1))]


def joined(parts: Sequence[Tensor], order: list[int], axis: int) -> Tensor:
    """The results of parts, in the order of heads or samples."""
    together = torch.cat(list(parts), axis)
    if order == sorted(order):
        return together
    return together.index_select(axis, torch.tensor(order, device=together.device).argsort())
