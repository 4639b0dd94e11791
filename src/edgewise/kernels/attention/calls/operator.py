"""Attention as one operator of torch, for `torch.compile` and `torch.export`.

A trace cannot look into kernels that are chosen by graph and sizes; it keeps this operator opaque.
Tensors have the shapes that kernels see; what is around them is traced as plain operations.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.cache import cache_of
from edgewise.kernels.attention import reference
from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.attention.autograd import gradients
from edgewise.kernels.attention.calls.kernel_calls import OneKernel
from edgewise.kernels.attention.calls.prepared import prepare_grouped
from edgewise.kernels.attention.calls.trace_names import thing_of
from edgewise.kernels.attention.contract import NO_TERMS, Grads, Options, Saved, Terms, wide
from edgewise.kernels.edges.attention import Dropout

INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? edge_bias, Tensor? edge_scale, "
    "Tensor? edge_key, Tensor? edge_value, Tensor[] tables, Tensor? seed, str graph, str score, "
    "float scale, SymInt offset, float dropout, str? kernel, bool lse"
)


def _attend(*inputs: Any) -> tuple[Tensor, Tensor]:
    (q, k, v), terms, found = _prepared(inputs)
    with without_autocast(q):
        out, sums = found.kernel.forward(found.case, q, k, v, terms)
    return out.contiguous(), sums.contiguous()


def _attend_backward(
    dout: Tensor, dlse: Tensor, out: Tensor, sums: Tensor, *inputs: Any
) -> list[Tensor]:
    """The gradients of q, k, v and of every term of the call, in order."""
    (q, k, v), terms, found = _prepared(inputs)
    saved = Saved(q, k, v, terms, out, sums)
    request = (found.kernel, found.case, saved, dout.contiguous(), dlse if inputs[-1] else None)
    with without_autocast(q):
        grads = _with_autograd(request) if found.kernel is reference else gradients(*request)
    each = [grads.q, grads.k, grads.v, *(x for x in grads.terms.tensors if x is not None)]
    return [x.contiguous() for x in each]


def _with_autograd(request: tuple[Any, ...]) -> Grads:
    """The reference needs autograd, which is off inside an operator, and on in a new thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(gradients, *request).result()


def _prepared(inputs: tuple[Any, ...]) -> tuple[tuple[Tensor, Tensor, Tensor], Terms, OneKernel]:
    """q, k and v, the terms, and the prepared call, which is cached with its graph."""
    q, k, v, *tensors, tables, seed = inputs[:10]
    graph, score, scale, offset, dropout, kernel, lse = inputs[10:]
    drop = Dropout(dropout, int(seed)) if seed is not None else None
    bare = drop is None and not tables and all(x is None for x in tensors)
    terms = NO_TERMS if bare else Terms.of([*tensors, *tables], drop)
    pattern, n, m = thing_of(graph), q.shape[2], k.shape[1]
    of_terms = tuple([None if x is None else x.shape for x in terms.tensors])
    key = ("operator", *inputs[10:], q.shape, k.shape, v.shape, q.dtype, q.device, of_terms)
    cache = cache_of(pattern)
    found: OneKernel | None = cache.at(n, m).get(key)
    if found is None:
        lse = lse or not bare  # gradients of terms start from it
        options = Options(scale, thing_of(score), dropout, offset, lse, False, kernel)
        found = prepare_grouped(q, k, v, pattern, options, terms)
        cache.add(n, m, key, found)
    return (q, k, v), terms, found


attend = torch.library.custom_op(
    "edgewise::attend", _attend, mutates_args=(), schema=f"({INPUTS}) -> (Tensor, Tensor)"
)
attend_backward = torch.library.custom_op(
    "edgewise::attend_backward",
    _attend_backward,
    mutates_args=(),
    schema=f"(Tensor dout, Tensor dlse, Tensor out, Tensor sums, {INPUTS}) -> Tensor[]",
)


@attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:-1], dtype=wide(q.dtype))


@attend_backward.register_fake
def _(dout: Tensor, dlse: Tensor, out: Tensor, sums: Tensor, *inputs: Any) -> list[Tensor]:
    *tensors, tables = inputs[:9]
    return [x.new_empty(x.shape) for x in (*tensors, *tables) if x is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
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


attend.register_autograd(_gradients, setup_context=_save)
