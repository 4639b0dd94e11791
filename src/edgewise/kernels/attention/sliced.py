"""Queries that all attend to one and the same run of keys, as the last token of a window does:
dense attention on a slice of the cache, which is read where it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.lengths import length_dependent
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.full import full
from edgewise.kernels.attention import dense
from edgewise.kernels.attention.autograd import refuse_forward_mode
from edgewise.kernels.attention.calls.arguments import check_tensors
from edgewise.kernels.attention.contract import (
    DTYPES,
    Case,
    Grads,
    Saved,
    Terms,
    cached_by_case,
    default_scale,
    facts,
)
from edgewise.kernels.attention.flash import fused, fuses_groups
from edgewise.scores.nodes import Call, J, Number, replaced

if TYPE_CHECKING:
    from edgewise.kernels.attention.calls.layout import Layout

name = "sliced"
LISTED = 4096  # numbers; more stay an array
MOST_RUNS, MOST_COPIED = 4, 4096  # of keys of one query that are copied side by side


@cached
def run_of(graph: Pattern, n: int, m: int) -> tuple[int, int] | None:
    """The keys low ≤ j < high where all queries attend to just these, else None."""
    found = facts(graph, n, m)
    if graph.bitmap is not None or found.pairs % max(n, 1) or not found.no_empty_row:
        return None
    rows = graph.rows(n, m)
    if len(rows.start) != 1 or len(rows.top) != 2 or rows.step[0] > 1:
        return None
    if n > 1 and (rows.dstart[0] or rows.dstop[0]):
        return None
    return int(rows.start[0]), int(rows.stop[0])


def runs_at(graph: object, row: int, m: int) -> list[slice] | None:
    """The keys, of m, that query `row` attends to, where they are few slices: looked up in rows
    that hold for every step of decoding, so that none of them plans anything."""
    if not isinstance(graph, Pattern) or not row < m:
        return None
    size = 1 << (m - 1).bit_length()
    rows = _lasting_rows(graph, size, size)
    if rows is None:
        return None
    slab = bisect_right(rows.top, row) - 1
    first, last = rows.ptr[slab], rows.ptr[slab + 1]
    if last > first + MOST_RUNS:
        return None
    down, found, keys = row - rows.top[slab], list[slice](), 0
    for at in range(first, last):
        low = rows.start[at] + rows.dstart[at] * down
        high = min(rows.stop[at] + rows.dstop[at] * down, m)
        if low < high:
            found.append(slice(int(low), int(high), int(rows.step[at])))
            keys += (high - low - 1) // rows.step[at] + 1
    return found if len(found) == 1 or (found and keys <= MOST_COPIED) else None


def joined(x: Tensor, runs: list[slice]) -> Tensor:
    """The rows of some runs: a view of one, a copy of several."""
    if len(runs) == 1:
        return x[..., runs[0], :]
    return torch.cat([x[..., run, :] for run in runs], -2)


class _LastingRows(NamedTuple):
    """Rows as lists, which are read faster than arrays where one number of each is needed."""

    top: Sequence[int]
    ptr: Sequence[int]
    step: Sequence[int]
    start: Sequence[int]
    dstart: Sequence[int]
    stop: Sequence[int]
    dstop: Sequence[int]


@cached
def _lasting_rows(graph: Pattern, n: int, m: int) -> _LastingRows | None:
    """The rows, where they are the beginning of those of any longer sequence."""
    if graph.bitmap is not None or graph.counts_twice or length_dependent(graph) is not None:
        return None
    rows = graph.rows(n, m)
    arrays: list[Any] = [getattr(rows, name) for name in _LastingRows._fields]
    return _LastingRows._make([x.tolist() if len(x) <= LISTED else x for x in arrays])


def one_query(q: Tensor, k: Tensor, v: Tensor, options: tuple[Any, ...]) -> Tensor | None:
    """One query per head over all keys, with nothing to prepare for another number of keys; None
    where there is more to it. Heads that share their keys are rows of one product where torch has
    no kernel that knows of groups: such a kernel splits the keys of one query, not of a few."""
    scale, _, _, lse, weights, _ = options
    if lse or weights or q.ndim != 4 or (scale is not None and scale <= 0):
        return None
    if q.is_meta or torch._C._is_any_autocast_enabled():
        return None
    of_q, of_k, of_v = q.shape, k.shape, v.shape
    if not _are_fine(q, k, v, of_q, of_k, of_v):
        check_tensors(q, k, v)
    batch, heads, n, d = of_q
    if not heads:
        return None
    refuse_forward_mode(name, q, k, v)
    scale = default_scale(d) if scale is None else scale
    grouped = heads != of_k[1]
    if not grouped or (q.is_cuda and fuses_groups(q.dtype, d, of_v[-1])):
        return fused(q, k, v, scale, grouped=grouped)
    rows = q.reshape(batch, of_k[1], -1, d)
    return fused(rows, k, v, scale).reshape(batch, heads, n, of_v[-1])


def _are_fine(
    q: Tensor, k: Tensor, v: Tensor, of_q: torch.Size, of_k: torch.Size, of_v: torch.Size
) -> bool:
    """What `check_tensors` finds nothing wrong with, told at once: a step of decoding is short."""
    if not len(of_q) == len(of_k) == len(of_v) or of_k[:-1] != of_v[:-1] or not of_k[1]:
        return False
    if of_q[0] != of_k[0] or of_q[1] % of_k[1] or of_q[-1] != of_k[-1]:
        return False
    dtype, device = q.dtype, q.device
    same = dtype == k.dtype == v.dtype and device == k.device == v.device
    return same and dtype in DTYPES and device.type in ("cpu", "cuda")


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    if case.is_full:
        return "the run of keys is all of them"
    if run_of(case.graph, case.n, case.m) is None:
        return "queries do not all attend to one and the same run of keys"
    return dense.refuses(_inner(case))


def cost(case: Case) -> float:
    return dense.cost(_inner(case))


@cached_by_case
def _inner(case: Case) -> Case:
    low, high = _run(case)
    score = replaced(case.score, {J: Call("add", (J, Number(low)))}) if low else case.score
    return replace(case, graph=full(), m=high - low, score=score)


def _run(case: Case) -> tuple[int, int]:
    found = run_of(case.graph, case.n, case.m)
    assert found is not None
    return found


def bind(case: Case, layout: Layout) -> Callable[..., Tensor]:
    low, high = _run(case)
    inner, shorter = _inner(case), copy(layout)
    of_q, of_k, of_v = layout.shapes
    shorter.case = inner
    shorter.shapes = (of_q, *((x[0], high - low, x[2]) for x in (of_k, of_v)))
    call = dense.bind(inner, shorter)

    def sliced(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
        return call(q, k[..., low:high, :], v[..., low:high, :], _of_run(case, terms))

    return sliced


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    low, high = _run(case)
    return dense.forward(_inner(case), q, k[:, low:high], v[:, low:high], _of_run(case, terms))


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    low, high = _run(case)
    k, v = saved.k[:, low:high], saved.v[:, low:high]
    terms = _of_run(case, saved.terms)
    inner = Saved(saved.q, k, v, terms, saved.out, saved.lse)
    found = dense.backward(_inner(case), inner, dout)
    dk, dv = torch.zeros_like(saved.k), torch.zeros_like(saved.v)
    dk[:, low:high], dv[:, low:high] = found.k, found.v
    return Grads(found.q, dk, dv, found.terms)


def _of_run(case: Case, terms: Terms) -> Terms:
    """Its part of a bias, which may be one for all keys."""
    if terms.bias is None or terms.bias.shape[-1] == 1:
        return terms
    low, high = _run(case)
    return replace(terms, bias=terms.bias[..., low:high])
