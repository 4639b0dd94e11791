"""Heads and samples with graphs of their own: a call is split into one for each different graph."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.families import Family, per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments
from edgewise.kernels.attention.errors import BadOption, GraphLength
from edgewise.kernels.attention.kept import is_traced
from edgewise.kernels.attention.options import Options

Graph = Pattern | per_head | per_sample
VECTORS = ("edge_key", "edge_value")
NAMES = ("edge_bias", "edge_scale", *VECTORS)
OTHER = 0x2545F491  # seeds of samples lie far from those of heads, which lie 1 << 20 apart


class Part(NamedTuple):
    """The heads or samples of one graph."""

    at: list[int]
    tensors: tuple[Tensor, Tensor, Tensor]
    graph: Any
    options: Options


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


def edge_terms(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, given: dict[str, Any], offset: int
) -> dict[str, Any]:
    """The terms of edges in all of their axes, for each graph; those of one graph as they are."""
    if isinstance(graph, Pattern):
        return given
    lead = q.shape[:-3] if isinstance(graph, per_head) else ()
    return {
        name: None if term is None else _shaped(term, name, graph, lead, (q, k, v), offset)
        for name, term in given.items()
    }


def _shaped(
    term: Any,
    name: str,
    graph: Any,
    lead: tuple[int, ...],
    tensors: tuple[Tensor, Tensor, Tensor],
    offset: int,
) -> Any:
    q, k, v = tensors
    if isinstance(graph, Family):
        _check_list(term, name, graph)
        wider = isinstance(graph, per_sample)
        inner = [
            (*lead, q.shape[-3] if not _is_vector(name) else k.shape[-3])
            if wider and isinstance(one, Pattern)
            else lead
            for one in graph.patterns
        ]
        each = zip(graph.patterns, term, inner, strict=True)
        return [
            _shaped(one_term, f"{name}[{at}]", one, axes, tensors, offset)
            for at, (one, one_term, axes) in enumerate(each)
        ]
    arguments.check_strided(term, name)
    last = (v if name.startswith("edge_value") else k).shape[-1:] if _is_vector(name) else ()
    if is_traced(q, k, v):  # how many edges there are, the operator counts
        missing = max(len(lead) + 1 + len(last) - term.ndim, 0)
        return term.reshape(*(1,) * missing, *term.shape)
    shape = (*lead, arguments.pairs_of(graph, q.shape[-2], k.shape[-2], offset), *last)
    return arguments.bias_for(term, name, shape, q).expand(shape)


def _is_vector(name: str) -> bool:
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


def split(
    q: Tensor, k: Tensor, v: Tensor, graphs: Family[Any], options: Options, *, alone: bool = False
) -> list[Part]:
    """Those with the same graph go together, or each is `alone`."""
    groups = [(graph, [at]) for at, graph in enumerate(graphs.patterns)]
    if not alone:
        members: dict[Any, list[int]] = {}
        for graph, at in groups:
            members.setdefault(graph, []).extend(at)
        groups = list(members.items())
    of = _of_samples if isinstance(graphs, per_sample) else _of_heads
    return [
        Part(at, *of(q, k, v, at, graph, options, number))
        for number, (graph, at) in enumerate(groups)
    ]


def _of_heads(
    q: Tensor, k: Tensor, v: Tensor, heads: list[int], graph: Any, options: Options, number: int
) -> tuple[tuple[Tensor, Tensor, Tensor], Any, Options]:
    shared = q.shape[-3] // max(k.shape[-3], 1)
    keys = [head // shared for head in heads]
    asked = replace(
        options,
        bias=_taken(options.bias, heads, 3),
        tables=tuple([_taken(table, heads, 2) for table in options.tables]),
        seed=options.seed + (number << 20),  # other weights are dropped in each part
        **_terms(options, lambda name, each: _stacked(each, heads, -3 if name in VECTORS else -2)),
    )
    return (q[..., heads, :, :], k[..., keys, :, :], v[..., keys, :, :]), graph, asked


def _of_samples(
    q: Tensor, k: Tensor, v: Tensor, samples: list[int], graph: Any, options: Options, number: int
) -> tuple[tuple[Tensor, Tensor, Tensor], Any, Options]:
    lengths = options.lengths
    asked = replace(
        options,
        bias=_taken(options.bias, samples, 4),
        tables=tuple([_taken(table, samples, 3) for table in options.tables]),
        seed=(options.seed + number * OTHER) % (1 << 31),
        lengths=None if lengths is None else torch.as_tensor(lengths)[samples],
        **_terms(options, lambda name, each: _together(each, samples, graph)),
    )
    return (q[samples], k[samples], v[samples]), graph, asked


def _terms(options: Options, made: Callable[[str, Any], Any]) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in NAMES}
    return {name: made(name, each) for name, each in given.items() if each is not None}


def _together(each: Sequence[Any], samples: list[int], graph: Any) -> Any:
    """The terms of samples with one graph; where it is per head, a list of those of each head."""
    if not isinstance(graph, per_head):
        return _stacked(each, samples, 0)
    return [_stacked([each[b][head] for b in samples], None, 0) for head in range(len(graph))]


def _stacked(each: Sequence[Tensor], at: Iterable[int] | None, axis: int) -> Tensor:
    return torch.stack([each[i] for i in at] if at is not None else list(each), axis)


def _taken(x: Any, at: list[int], axis: int) -> Any:
    """Some of those along an axis, counted from the end, that may be missing or of length 1."""
    if x is None or x.ndim < axis or x.shape[-axis] == 1:
        return x
    return x[(..., at, *(slice(None),) * (axis - 1))]


def joined(parts: Sequence[Tensor], order: list[int], axis: int) -> Tensor:
    """The results of parts, in the order of heads or samples."""
    whole = torch.cat(list(parts), axis)
    if order == sorted(order):
        return whole
    return whole.index_select(axis, torch.tensor(order, device=whole.device).argsort())
