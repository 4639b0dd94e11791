"""Runs of queries that attend to the same keys, such as the sentences of a text: the keys of each
run are gathered, and it is one fused product without a mask.

Masks of classes have such rows, and few of them where blocks would touch nearly all pairs.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import residue_groups
from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, cached_by_case, wide
from edgewise.kernels.attention.flash import flash, flash_backward
from edgewise.layouts.ragged import ranges

name = "slabs"
PAIR = 1.05
START = 2e4  # the cost of one call in pairs
GATHERED = 24  # that of one gathered key, and of its gradient

Slab = tuple[int, int, Tensor]  # queries first ≤ i < last, and their keys


def refuses(case: Case) -> str | None:
    if case.device != "cpu":
        return f"it runs on a CPU, not on {case.device}"
    if not case.work:
        return "there are no pairs"
    if reason := case.lacks():
        return reason
    if not _is_listed(case.graph, case.n, case.m):
        return "the graph is not made of runs of queries with the same keys"
    return None


@cached
def _is_listed(graph: Pattern, n: int, m: int) -> bool:
    if residue_groups(graph, n, m) is not None or graph.bitmap is not None:
        return False  # it has steps, or runs of keys too many to look at
    rows = graph.rows(n, m)
    return not (rows.dstart.any() or rows.dstop.any())


def least(case: Case) -> float:
    """What it costs at least: the work, in one run."""
    return case.work * PAIR + START


def cost(case: Case) -> float:
    runs = np.count_nonzero(np.diff(case.rows.ptr))
    gathered = case.b * GATHERED * int(case.rows.size.sum())
    return float(case.work * PAIR + gathered + START * runs)


@cached_by_case
def _slabs(case: Case) -> tuple[Slab, ...]:
    rows, found = case.rows, []
    for at, (top, bottom) in enumerate(zip(rows.top[:-1], rows.top[1:], strict=True)):
        own = slice(rows.ptr[at], rows.ptr[at + 1])
        keys = ranges(rows.start[own], rows.size[own], rows.step[own])
        if len(keys) and top < bottom:
            found.append((int(top), int(bottom), torch.from_numpy(keys)))
    return tuple(found)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    out = q.new_zeros(*q.shape[:-1], case.dv)
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=case.wide)
    for top, bottom, keys in _slabs(case):
        near, values = _taken(keys, case.g, k, v)
        out[:, :, top:bottom], lse[:, :, top:bottom] = flash(
            q[:, :, top:bottom], near, values, case.scale, mask=None
        )
    return out, lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    kind = wide(saved.q.dtype)
    dq = torch.zeros_like(saved.q)
    dk, dv = (torch.zeros(x.shape, dtype=kind) for x in (saved.k, saved.v))
    for top, bottom, keys in _slabs(case):
        q, out, lse, g = (x[:, :, top:bottom] for x in (saved.q, saved.out, saved.lse, dout))
        k, v = _taken(keys, case.g, saved.k, saved.v)
        parts = flash_backward(g, (q, k, v, out, lse), case.scale, mask=None)
        dq[:, :, top:bottom] = parts[0]
        for total, part in ((dk, parts[1]), (dv, parts[2])):
            total.index_add_(1, keys, part.sum(1).to(kind))
    return Grads(dq, dk.to(saved.k.dtype), dv.to(saved.v.dtype))


def _taken(keys: Tensor, g: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Some rows of each (b, m, d) as (b, g, keys, d)."""
    return tuple(x.index_select(1, keys)[:, None].expand(-1, g, -1, -1) for x in tensors)
