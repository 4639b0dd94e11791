"""Attention as one operator of torch, for `torch.compile` and `torch.export`.

A trace cannot look into kernels that are chosen by graph and sizes; it keeps this operator opaque.
Tensors have the shapes that kernels see; what is around them is traced as plain operations.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.cache import cache_of
from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments, reference
from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.attention.autograd import gradients
from edgewise.kernels.attention.contract import Case, Grads, Implementation, Saved, Terms, wide
from edgewise.kernels.attention.errors import AttentionShape
from edgewise.kernels.attention.registry import choose
from edgewise.kernels.attention.trace_names import thing_of
from edgewise.kernels.edges.dropout import Dropout
from edgewise.scores.nodes import S

EDGES = {"edge_bias": 2, "edge_scale": 2, "edge_key": 1, "edge_value": 1}  # the axis of edges


def _decided(
    tensors: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
    request: tuple[str, str, float, int, str | None],
    lse: bool,
) -> tuple[Case, Implementation]:
    """The case of a call, and its kernel: decided once, and cached with the graph."""
    q, k, v = tensors
    shapes = (q.shape, k.shape, v.shape, q.dtype, q.device.type)
    of_terms = tuple([None if x is None else x.shape for x in terms.tensors])
    cache, n, m = cache_of(thing_of(request[0])), q.shape[2], k.shape[1]
    key = ("operator", request, lse, shapes, of_terms, terms.drop is None)
    found = cache.at(n, m).get(key)
    if found is None:
        found = _decide(tensors, terms, request, lse)
        cache.add(n, m, key, found)
    return found[:2]


def _decide(
    tensors: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
    request: tuple[str, str, float, int, str | None],
    lse: bool,
) -> tuple[Case, Implementation, Pattern]:
    """With the graph of the case, whose cache lives as long."""
    graph, score, scale, offset, kernel = request
    pattern = cache_of(thing_of(graph)).graph
    pattern = pattern.shift(-offset, 0) if integer(offset, "offset") else pattern
    case = arguments.build_case(tensors, pattern, scale, tensors[0].device.type)
    for name, axis in EDGES.items():
        term = getattr(terms, name)
        if term is not None and term.shape[axis] != case.pairs:
            raise AttentionShape(
                f"`{name}` has numbers for {term.shape[axis]:,} edges, the graph has "
                f"{case.pairs:,}",
                caller(),
                "give one for each pair, in the order of `graph.edges(n, m)`",
            )
    features = {name for name in ("bias", *EDGES) if getattr(terms, name) is not None}
    made = thing_of(score)
    features |= {"score"} if made != S else set()
    features |= {"dropout"} if terms.drop is not None else set()
    features |= {"lse"} if lse or features else set()
    case = replace(case, features=frozenset(features), score=made)
    return case, choose(case, kernel).implementation, pattern


def _terms(
    tensors: Sequence[Tensor | None], tables: Sequence[Tensor], seed: Tensor | None, chance: float
) -> Terms:
    drop = Dropout(chance, int(seed)) if seed is not None else None
    return Terms.of([*tensors, *tables], drop)


@torch.library.custom_op("edgewise::attend", mutates_args=())
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    edge_bias: Tensor | None,
    edge_scale: Tensor | None,
    edge_key: Tensor | None,
    edge_value: Tensor | None,
    tables: Sequence[Tensor],
    seed: Tensor | None,
    graph: str,
    score: str,
    scale: float,
    offset: int,
    dropout: float,
    kernel: str | None,
    lse: bool,
) -> tuple[Tensor, Tensor]:
    inputs = (bias, edge_bias, edge_scale, edge_key, edge_value)
    terms = _terms(inputs, tables, seed, dropout)
    case, chosen = _decided((q, k, v), terms, (graph, score, scale, offset, kernel), lse)
    with without_autocast(q):
        out, sums = chosen.forward(case, q, k, v, terms)
    return out.contiguous(), sums.contiguous()


@attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:-1], dtype=wide(q.dtype))


@torch.library.custom_op("edgewise::attend_backward", mutates_args=())
def attend_backward(
    dout: Tensor,
    dlse: Tensor,
    out: Tensor,
    sums: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    edge_bias: Tensor | None,
    edge_scale: Tensor | None,
    edge_key: Tensor | None,
    edge_value: Tensor | None,
    tables: Sequence[Tensor],
    seed: Tensor | None,
    graph: str,
    score: str,
    scale: float,
    offset: int,
    dropout: float,
    kernel: str | None,
    lse: bool,
) -> list[Tensor]:
    """The gradients of q, k, v and of every term of the call, in order."""
    inputs = (bias, edge_bias, edge_scale, edge_key, edge_value)
    terms = _terms(inputs, tables, seed, dropout)
    case, chosen = _decided((q, k, v), terms, (graph, score, scale, offset, kernel), lse)
    saved = Saved(q, k, v, terms, out, sums)
    request = (chosen, case, saved, dout.contiguous(), dlse if lse else None)
    with without_autocast(q):
        grads = _with_autograd(request) if chosen is reference else gradients(*request)
    found = [grads.q, grads.k, grads.v, *(x for x in grads.terms.tensors if x is not None)]
    return [x.contiguous() for x in found]


def _with_autograd(request: tuple[Any, ...]) -> Grads:
    """The reference needs autograd, which is off inside an operator, and on in a new thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(gradients, *request).result()


@attend_backward.register_fake
def _(
    dout: Tensor, dlse: Tensor, out: Tensor, sums: Tensor, q: Tensor, k: Tensor, v: Tensor,
    bias: Tensor | None, edge_bias: Tensor | None, edge_scale: Tensor | None,
    edge_key: Tensor | None, edge_value: Tensor | None, tables: Sequence[Tensor], *rest: Any,
) -> list[Tensor]:  # fmt: skip
    inputs = (q, k, v, bias, edge_bias, edge_scale, edge_key, edge_value, *tables)
    return [x.new_empty(x.shape) for x in inputs if x is not None]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, tables, seed = inputs[:10]
    ctx.save_for_backward(*output, *tensors, seed, *tables)
    ctx.request = inputs[10:]


def _gradients(ctx: Any, dout: Tensor, dlse: Tensor) -> tuple[Any, ...]:
    out, sums, *tensors = ctx.saved_tensors
    inputs, seed, tables = tensors[:8], tensors[8], tensors[9:]
    saved = (out, sums, *inputs, tables, seed)
    found = iter(torch.ops.edgewise.attend_backward(dout, dlse, *saved, *ctx.request))
    grads = [None if x is None else next(found) for x in inputs]
    return (*grads, list(found), None, *(None for _ in ctx.request))


attend.register_autograd(_gradients, setup_context=_keep)
