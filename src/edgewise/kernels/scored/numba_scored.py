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
from edgewise.kernels.scored.contract import KINDS, Found, Grads, Inputs, for_query
from edgewise.kernels.threads import spread

name = "numba_scored"


def refuses(dtype: torch.dtype, device: str, widest: int) -> str | None:
    return no_numba(device)


def forward(given: Inputs, which: Gather) -> Found:
    kind = wide(given.v.dtype)
    heads, n, width = len(given.v), which.forth.segments, given.v.shape[2]
    out, lse = (given.v.new_empty(shape, dtype=kind) for shape in ((heads, n, width), (heads, n)))
    plus, share = out.new_empty(0, 0, 0), out.new_empty(0, 0)
    if given.kind == "additive":
        plus, share = torch.empty_like(out), torch.empty_like(lse)
    graph = which.forth.ptr.numpy(), which.forth.rows.numpy()
    arguments = (*graph, *_inputs(given, kind), *(x.numpy() for x in (out, lse, plus, share)))
    numbers = _numbers(given, which)
    spread(_loops().forward, arguments, which.forth.ptr, numbers=numbers, heads=heads)
    return Found(out.to(given.v.dtype), lse, plus.to(given.v.dtype), share)


def backward(given: Inputs, found: Found, dout: Tensor, which: Gather) -> Grads:
    kind = wide(given.v.dtype)
    top = _array(torch.where(found.lse == -torch.inf, torch.inf, found.lse), kind)
    delta = _array((dout.to(kind) * found.out.to(kind)).sum(-1), kind)
    saved = (top, delta, _array(dout, kind))
    if given.kind == "additive":
        return _additive(given, found, dout, saved, which)
    return _in_two_passes(given, saved, which)


def _additive(
    given: Inputs, found: Found, dout: Tensor, saved: tuple[np.ndarray, ...], which: Gather
) -> Grads:
    _, slope, q, k, v, _, keep = _inputs(given, wide(given.v.dtype))
    dk, dv = np.empty_like(k), np.empty_like(v)
    arguments = (*_back(which), slope, q, k, v, keep, *saved, dk, dv)
    numbers = _numbers(given, which)
    spread(_loops().backward_additive, arguments, which.back.ptr, numbers=numbers, heads=len(v))
    kind = given.v.dtype
    dq = for_query(given.slope, found, dout)
    return Grads(dq.to(kind), _tensor(dk).to(kind), _tensor(dv).to(kind), None)


def _in_two_passes(given: Inputs, saved: tuple[np.ndarray, ...], which: Gather) -> Grads:
    inputs, numbers = _inputs(given, wide(given.v.dtype)), _numbers(given, which)
    number, slope, q, k, v, t, _ = inputs
    heads, dout = len(v), saved[2]
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    per_row = (heads, which.forth.segments, q.shape[2])
    dt = np.empty(per_row if given.kind == "of sums" else t.shape, v.dtype)
    pairs = np.empty((heads, which.forth.entries, 2), v.dtype)
    forth = which.forth.ptr.numpy(), which.forth.rows.numpy()
    rows = (*forth, *inputs, *saved, dq, dt, pairs)
    spread(_loops().backward_rows, rows, which.forth.ptr, numbers=numbers, heads=heads)
    columns = (*_back(which), number, slope, q, k, t, dout, pairs, dk, dv)
    spread(_loops().backward_columns, columns, which.back.ptr, numbers=numbers, heads=heads)
    queries, keys, values, extra = (_tensor(x).to(given.v.dtype) for x in (dq, dk, dv, dt))
    extra = extra.sum(1, keepdim=True) if given.kind == "of sums" else extra
    return Grads(queries, keys, values, extra)


def _back(which: Gather) -> tuple[np.ndarray, ...]:
    return which.back.ptr.numpy(), which.back.rows.numpy(), which.forth.turn.numpy()


def _tensor(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x)


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
