"""Scored attention on a CPU: one fused pass over rows, and for gradients one over columns."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.aggregate.index import Gather
from edgewise.kernels.aggregate.reference import wide
from edgewise.kernels.availability import no_numba
from edgewise.kernels.scored.contract import KINDS, Grads, Inputs
from edgewise.kernels.threads import spread

name = "numba_scored"


def refuses(dtype: torch.dtype, device: str, widest: int) -> str | None:
    return no_numba(device)


def forward(given: Inputs, which: Gather) -> tuple[Tensor, Tensor]:
    kind = wide(given.v.dtype)
    v = _array(given.v, kind)
    out = np.empty((len(v), which.forth.segments, v.shape[2]), v.dtype)
    lse = np.empty(out.shape[:2], v.dtype)
    graph = which.forth.ptr.numpy(), which.forth.rows.numpy()
    arguments = (*graph, *_inputs(given, kind), out, lse)
    spread(
        _loops().forward, arguments, which.forth.ptr, numbers=_numbers(given, which), heads=len(v)
    )
    return torch.from_numpy(out).to(given.v.dtype), torch.from_numpy(lse)


def backward(given: Inputs, out: Tensor, lse: Tensor, dout: Tensor, which: Gather) -> Grads:
    kind, numbers = wide(given.v.dtype), _numbers(given, which)
    inputs = _inputs(given, kind)
    number, slope, q, k, v, t, _ = inputs
    heads, entries = len(v), which.forth.entries
    delta = _array((dout.to(kind) * out.to(kind)).sum(-1), kind)
    top = _array(torch.where(lse == -torch.inf, torch.inf, lse), kind)
    g = _array(dout, kind)
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    per_row = (heads, which.forth.segments, q.shape[2])
    dt = np.empty(per_row if given.kind == "of sums" else t.shape, v.dtype)
    pairs = np.empty((heads, entries, 2), v.dtype)
    forth = which.forth.ptr.numpy(), which.forth.rows.numpy()
    rows = (*forth, *inputs, top, delta, g, dq, dt, pairs)
    spread(_loops().backward_rows, rows, which.forth.ptr, numbers=numbers, heads=heads)
    back = which.back.ptr.numpy(), which.back.rows.numpy(), which.forth.turn.numpy()
    columns = (*back, number, slope, q, k, t, g, pairs, dk, dv)
    spread(_loops().backward_columns, columns, which.back.ptr, numbers=numbers, heads=heads)
    found = [torch.from_numpy(x).to(given.v.dtype) for x in (dq, dk, dv, dt)]
    if given.kind == "of sums":
        found[3] = found[3].sum(1, keepdim=True)
    queries, keys, values, extra = found
    return Grads(queries, keys, values, None if given.t is None else extra)


def _inputs(given: Inputs, kind: torch.dtype) -> tuple[Any, ...]:
    """As loops take them; what is not given has no heads."""
    arrays = [_array(x, kind) for x in (given.q, given.k, given.v)]
    t = np.empty((0, 0, 0), arrays[0].dtype) if given.t is None else _array(given.t, kind)
    keep = np.empty((0, 0), t.dtype) if given.keep is None else _array(given.keep, kind)
    return KINDS.index(given.kind), t.dtype.type(given.slope), *arrays, t, keep


def _array(x: Tensor, kind: torch.dtype) -> np.ndarray:
    return x.detach().to(kind).contiguous().numpy()


def _numbers(given: Inputs, which: Gather) -> int:
    return len(given.v) * which.forth.entries * (given.q.shape[2] + given.v.shape[2])


def _loops() -> ModuleType:
    from edgewise.kernels.scored import loops

    return loops
