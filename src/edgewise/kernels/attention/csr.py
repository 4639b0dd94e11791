"""Arbitrary edges on a CPU: one fused pass over rows, and for gradients one over columns."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.edges import edges
from edgewise.kernels.attention.function import row_dots

name = "csr"
PAIR = 6.0  # the time of one edge in pairs of a dense product
SMALL = 1 << 16  # edges × features that one thread does sooner than it could start another


def refuses(case: Case) -> str | None:
    if case.device != "cpu":
        return f"it runs on a CPU, not on {case.device}"
    if find_spec("numba") is None:
        return 'numba is not installed: pip install "edgewise[cpu]"'
    if not case.work:
        return "there are no pairs"
    return case.lacks("edge_bias", "dropout")


def cost(case: Case) -> float:
    return case.b * case.g * (PAIR * case.pairs + 8.0 * case.n) + 2e4


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    plan, kind = edges(case.graph, case.n, case.m), wide(q.dtype)
    queries, keys, values = _arrays(kind, q.flatten(0, 1), k, v)
    out = np.empty((*queries.shape[:2], case.dv), queries.dtype)
    lse = np.empty(queries.shape[:2], queries.dtype)
    scale = queries.dtype.type(case.scale)
    graph = plan.ptr.numpy(), plan.index.numpy()
    arguments = (*graph, queries, keys, values, *_per_edge(terms, kind), scale, out, lse)
    _spread(_loops().forward, arguments, plan.ptr, len(queries), case)
    result = torch.from_numpy(out).to(q.dtype).view(*q.shape[:3], case.dv)
    return result, torch.from_numpy(lse).view(q.shape[:3])


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    plan, kind = edges(case.graph, case.n, case.m), wide(saved.q.dtype)
    q, k, v = _arrays(kind, saved.q.flatten(0, 1), saved.k, saved.v)
    flat, lse = _arrays(kind, dout.flatten(0, 1), saved.lse.flatten(0, 1))
    (delta,) = _arrays(kind, row_dots(dout, saved.out).flatten(0, 1))
    scale = q.dtype.type(case.scale)
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    pairs = np.empty((len(q), plan.count, 2), q.dtype)  # of each edge: weight, score's gradient
    graph, extra = (plan.ptr.numpy(), plan.index.numpy()), _per_edge(saved.terms, kind)
    rows = (*graph, q, k, v, *extra, scale, lse, delta, flat, dq, pairs)
    _spread(_loops().backward_rows, rows, plan.ptr, len(q), case)
    columns = (plan.col_ptr.numpy(), plan.col_row.numpy(), plan.edge.numpy())
    _spread(
        _loops().backward_columns,
        (*columns, q, flat, pairs, scale, dk, dv),
        plan.col_ptr,
        len(k),
        case,
    )
    queries, keys, values = (torch.from_numpy(x).to(saved.q.dtype) for x in (dq, dk, dv))
    return Grads(
        queries.view_as(saved.q), keys, values, edge_bias=_edge_gradient(saved, pairs[..., 1])
    )


def _edge_gradient(saved: Saved, ds: np.ndarray) -> Tensor | None:
    bias = saved.terms.edge_bias
    return None if bias is None else torch.from_numpy(ds).to(bias.dtype).reshape(bias.shape)


def _arrays(kind: torch.dtype, *tensors: Tensor) -> list[np.ndarray]:
    return [x.detach().to(kind).contiguous().numpy() for x in tensors]


def _per_edge(terms: Terms, kind: torch.dtype) -> list[np.ndarray]:
    """The bias and the dropout of each edge of each head; (0, 0) where there is none."""
    given = (terms.edge_bias, terms.keep)
    none = torch.empty(0, 0, dtype=kind)
    return _arrays(kind, *(none if x is None else x.flatten(0, 1) for x in given))


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
