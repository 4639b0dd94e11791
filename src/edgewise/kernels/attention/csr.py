"""Arbitrary edges on a CPU: one fused pass over rows, and for gradients one over columns.

A score that is more than a dot product with factors and biases is computed between two passes,
for all edges at once.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.attention.contract import EDGE_TERMS, Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.edges import Edges, edges
from edgewise.kernels.attention.function import row_dots
from edgewise.kernels.attention.terms import (
    Scores,
    TermGrads,
    Tile,
    kept_edges,
    off_edges,
    on_edges,
    places,
)
from edgewise.kernels.availability import no_numba
from edgewise.scores.nodes import S

name = "csr"
PAIR = 6.0  # the time of one edge in pairs of a dense product
SMALL = 1 << 16  # edges × features that one thread does sooner than it could start another
Arrays = tuple[np.ndarray, ...]


def refuses(case: Case) -> str | None:
    if reason := no_numba(case.device):
        return reason
    if not case.work:
        return "there are no pairs"
    return case.lacks(*EDGE_TERMS)


def cost(case: Case) -> float:
    return case.b * case.g * (PAIR * case.pairs + 8.0 * case.n) + 2e4


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    plan, kind = edges(case.graph, case.n, case.m), wide(q.dtype)
    terms = on_edges(case, terms)
    if case.score != S:
        scores = _scores(case, plan, q, k, terms)
        terms = replace(terms, edge_bias=scores.values(), edge_scale=None, edge_key=None)
        q, k = q[..., :0], k[..., :0]  # the scores are known
    queries, keys, values = _arrays(kind, q.flatten(0, 1), k, v)
    out = np.empty((*queries.shape[:2], case.dv), queries.dtype)
    lse = np.empty(queries.shape[:2], queries.dtype)
    scale = queries.dtype.type(case.scale)
    extra = _per_edge(case, terms, kind)
    arguments = (*_graph(plan), queries, keys, values, *extra, scale, out, lse)
    _spread(_loops().forward, arguments, plan.ptr, len(queries), case)
    result = torch.from_numpy(out).to(q.dtype).view(*q.shape[:3], case.dv)
    return result, torch.from_numpy(lse).view(q.shape[:3])


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    plan, kind = edges(case.graph, case.n, case.m), wide(saved.q.dtype)
    terms = on_edges(case, saved.terms)
    total = TermGrads(case, terms)
    rows = _arrays(kind, saved.lse.flatten(0, 1), row_dots(dout, saved.out).flatten(0, 1))
    (flat,) = _arrays(kind, dout.flatten(0, 1))
    tensors = (saved.q.flatten(0, 1), saved.k, saved.v)
    inner = _plain if case.score == S else _staged
    dq, pairs = inner(case, plan, _arrays(kind, *tensors), (*rows, flat), saved, terms, total)
    q, k, v = _arrays(kind, *tensors)
    dk, dv = np.empty_like(k), np.empty_like(v)
    columns = (plan.col_ptr.numpy(), plan.col_row.numpy(), plan.edge.numpy())
    per_edge = [_room(x, 3, kind) for x in (total.edge_key, total.edge_value)]
    scale = q.dtype.type(case.scale)
    arguments = (*columns, q, flat, pairs, scale, dk, dv, *per_edge)
    _spread(_loops().backward_columns, arguments, plan.col_ptr, len(k), case)
    queries, keys, values = (torch.from_numpy(x).to(saved.q.dtype) for x in (dq, dk, dv))
    found = off_edges(case, saved.terms, total.terms())
    return Grads(queries.view_as(saved.q), keys, values, found)


def _plain(
    case: Case, plan: Edges, tensors: list[np.ndarray], rows: Arrays, saved: Saved, terms: Terms,
    total: TermGrads,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """dq, and of each edge its weight and the gradient of its dot product."""
    kind, (q, k, v) = wide(case.dtype), tensors
    dq, pairs = np.empty_like(q), np.empty((len(q), plan.count, 2), q.dtype)
    room = [_room(_heads(x), 2, kind) for x in (total.edge_bias, total.edge_scale)]
    extra = _per_edge(case, terms, kind)
    scale = q.dtype.type(case.scale)
    arguments = (*_graph(plan), q, k, v, *extra, scale, *rows, dq, *room, pairs)
    _spread(_loops().backward_rows, arguments, plan.ptr, len(q), case)
    return dq, pairs


def _staged(
    case: Case, plan: Edges, tensors: list[np.ndarray], rows: Arrays, saved: Saved, terms: Terms,
    total: TermGrads,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The same where the score is computed for all edges at once."""
    kind, (q, k, v) = wide(case.dtype), tensors
    scores = _scores(case, plan, saved.q, saved.k, terms)
    known = replace(terms, edge_bias=scores.values(), edge_scale=None, edge_key=None)
    dq, pairs = np.empty_like(q), np.empty((len(q), plan.count, 2), q.dtype)
    extra, none = _per_edge(case, known, kind), _room(None, 2, kind)
    short = (np.ascontiguousarray(x[..., :0]) for x in (q, k))
    scale = q.dtype.type(case.scale)
    arguments = (
        *_graph(plan), *short, v, *extra, scale, *rows, dq[..., :0].copy(), none, none, pairs
    )  # fmt: skip
    _spread(_loops().backward_rows, arguments, plan.ptr, len(q), case)
    ds = torch.from_numpy(pairs[..., 1]).view(case.b, case.g, -1)
    pairs[..., 1] = scores.backward(ds, total).flatten(0, 1).numpy()
    (keys,) = _terms_of(kind, 3, terms.edge_key)
    pulled = (*_graph(plan), k, keys, pairs, scale, dq)
    _spread(_loops().pull_rows, pulled, plan.ptr, len(q), case)
    return dq, pairs


def _scores(case: Case, plan: Edges, q: Tensor, k: Tensor, terms: Terms) -> Scores:
    kind = wide(q.dtype)
    queries, keys = _arrays(kind, q.flatten(0, 1), k)
    dots = np.empty((len(queries), plan.count), queries.dtype)
    scale = queries.dtype.type(case.scale)
    arguments = (*_graph(plan), queries, keys, *_terms_of(kind, 3, terms.edge_key), scale, dots)
    _spread(_loops().dots, arguments, plan.ptr, len(queries), case)
    i, j = places(case.graph, case.n, case.m, "cpu")
    tile = Tile(i, j, torch.arange(plan.count))
    return Scores(case, terms, tile, torch.from_numpy(dots).view(case.b, case.g, -1))


def _graph(plan: Edges) -> Arrays:
    return plan.ptr.numpy(), plan.index.numpy()


def _arrays(kind: torch.dtype, *tensors: Tensor) -> list[np.ndarray]:
    return [x.detach().to(kind).contiguous().numpy() for x in tensors]


def _heads(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.flatten(0, 1)


def _room(total: Tensor | None, axes: int, kind: torch.dtype) -> np.ndarray:
    """The gradient that a loop fills in; without heads where there is none."""
    return torch.empty((0,) * axes, dtype=kind).numpy() if total is None else total.numpy()


def _terms_of(kind: torch.dtype, axes: int, *given: Tensor | None) -> list[np.ndarray]:
    """Terms as loops take them; without heads where there is none."""
    none = torch.empty((0,) * axes, dtype=kind)
    return _arrays(kind, *(none if x is None else x for x in given))


def _per_edge(case: Case, terms: Terms, kind: torch.dtype) -> list[np.ndarray]:
    """Of each edge of each head: bias, dropout, factor; of each key head: its key and value."""
    keep = kept_edges(case, terms, kind)
    scalars = (_heads(x) for x in (terms.edge_bias, keep, terms.edge_scale))
    vectors = (terms.edge_key, terms.edge_value)
    return [*_terms_of(kind, 2, *scalars), *_terms_of(kind, 3, *vectors)]


def _loops() -> ModuleType:
    from edgewise.kernels.attention import csr_loops

    return csr_loops


def _spread(
    loop: Callable[..., None], arguments: tuple[Any, ...], ptr: Tensor, heads: int, case: Case
) -> None:
    """Run `loop` for all heads on ranges of rows with about as many edges each."""
    threads = torch.get_num_threads()
    edges_of = int(ptr[-1])
    if threads == 1 or heads * edges_of * (case.d + case.dv) < SMALL:
        for h in range(heads):
            loop(*arguments, h, 0, len(ptr) - 1)
        return
    parts = max(-(-4 * threads // heads), 1)
    rows = torch.arange(len(ptr))
    load = ptr + rows  # a row without edges is work too
    marks = torch.linspace(0, int(load[-1]), parts + 1).long()
    ends = torch.searchsorted(load, marks).clamp(max=len(ptr) - 1).tolist()
    ends[0], ends[-1] = 0, len(ptr) - 1
    with ThreadPoolExecutor(threads) as pool:
        tasks = [
            pool.submit(loop, *arguments, h, a, b)
            for h in range(heads)
            for a, b in pairwise(ends)
            if a < b
        ]
        for task in tasks:
            task.result()
