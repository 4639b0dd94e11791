"""Attention of one rank, part by part: what is sent, computed and merged, forward and backward.

Tensors are as kernels see them: q (b, g, n, d), k (b, m, d), v (b, m, dv). A part gives a partial
output and its log-sum-exp for the queries of the rank; `backward` starts from those of all parts
together, so the gradients of the parts add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.head_graphs import HeadsAttention
from edgewise.distributed.local_attention import LocalAttention, Rest, SharedCall, Tensors


class RankPart(Protocol):
    """A part of the pairs of this rank's queries."""

    def start(self, call: SharedCall, tensors: Tensors) -> Any:
        """Send what others need, and do not wait: all parts start before the first computes."""

    def forward(
        self, call: SharedCall, tensors: Tensors, started: Any
    ) -> tuple[Tensor, Tensor, Any]:
        """The partial output, its log-sum-exp, and what the backward pass needs."""

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        """The gradients of q, k and v."""


@dataclass(frozen=True, eq=False)
class Fetch:
    """Rows of tensors from their ranks: how many come from each, their order, and what is sent."""

    received: list[int]
    order: Tensor | None  # to ascending tokens, where ranks do not have consecutive ones
    sent: list[int]
    index: Tensor  # the own rows that are sent

    def start(self, ranks: Ranks, kind: str, *tensors: Tensor) -> Callable[[], tuple[Tensor, ...]]:
        """Tensors (..., rows, size) as they are here → with the rows that this rank fetches."""
        rows = _rows_of(*tensors).index_select(0, self.index)
        wait = ranks.exchange(rows, self.sent, self.received, kind)

        def finish() -> tuple[Tensor, ...]:
            found = wait()
            found = found if self.order is None else found.index_select(0, self.order)
            return _split_rows(found, *tensors)

        return finish

    def back(self, ranks: Ranks, kind: str, *tensors: Tensor) -> Callable[[], tuple[Tensor, ...]]:
        """What was computed of fetched rows, to their ranks: for each row that was sent."""
        rows = _rows_of(*tensors)
        if self.order is not None:
            rows = torch.empty_like(rows).index_copy_(0, self.order, rows)
        wait = ranks.exchange(rows, self.received, self.sent, kind)
        return lambda: _split_rows(wait(), *tensors)


def _rows_of(*tensors: Tensor) -> Tensor:
    """(rows, everything else) of tensors whose rows are the axis before the last."""
    return torch.cat([x.movedim(-2, 0).flatten(1) for x in tensors], 1)


def _split_rows(rows: Tensor, *like: Tensor) -> tuple[Tensor, ...]:
    """Tensors of other numbers of rows than `like`, from their rows side by side."""
    widths = [math.prod((*x.shape[:-2], x.shape[-1])) for x in like]
    shapes = [(len(rows), *x.shape[:-2], x.shape[-1]) for x in like]
    parts = rows.split(widths, 1)
    return tuple(
        part.reshape(shape).movedim(0, -2).contiguous()
        for part, shape in zip(parts, shapes, strict=True)
    )


@dataclass(frozen=True, eq=False)
class ExchangePart:
    """Own keys at once, those of others when they are there."""

    own: LocalAttention | HeadsAttention
    fetch: Fetch
    remote: LocalAttention | HeadsAttention | None  # None where no rank fetches any
    queries: Tensor | None  # which queries have remote keys; None for all
    kind: str

    def start(self, call: SharedCall, tensors: Tensors) -> Any:
        _, k, v = tensors
        return None if self.remote is None else self.fetch.start(call.ranks, self.kind, k, v)

    def forward(
        self, call: SharedCall, tensors: Tensors, started: Any
    ) -> tuple[Tensor, Tensor, Any]:
        out, lse = self.own.forward(tensors, call)
        if self.remote is None:
            return out, lse, None
        q, far = tensors[0], started()
        some = q if self.queries is None else q.index_select(2, self.queries)
        merged = merge((out, lse), self.remote.forward((some, *far), call), self.queries)
        return *merged, far

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        if self.remote is None:
            return self.own.backward(tensors, rest, call)
        q, at = tensors[0], self.queries
        some, of_rest = q, rest
        if at is not None:
            some = q.index_select(2, at)
            of_rest = Rest(*(x.index_select(2, at) for x in rest))
        far_q, far_k, far_v = self.remote.backward((some, *state), of_rest, call)
        wait = self.fetch.back(call.ranks, f"{self.kind} back", far_k, far_v)
        dq, dk, dv = self.own.backward(tensors, rest, call)
        dq = dq + far_q if at is None else dq.index_add(2, at, far_q.to(dq.dtype))
        dk, dv = (
            grad.index_add(1, self.fetch.index, more.to(grad.dtype))
            for grad, more in zip((dk, dv), wait(), strict=True)
        )
        return dq, dk, dv


def merge(
    a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], rows: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Two partial results as one; the second for some rows of the first."""
    (out, lse), (more, of_more) = a, b
    before = (out, lse) if rows is None else (out.index_select(2, rows), lse.index_select(2, rows))
    total = torch.logaddexp(before[1], of_more.to(lse.dtype))
    safe = torch.where(total == -torch.inf, 0, total)
    share, added = (torch.exp(x - safe)[..., None] for x in (before[1], of_more.to(lse.dtype)))
    sum_ = (before[0].to(lse.dtype) * share + more.to(lse.dtype) * added).to(out.dtype)
    if rows is None:
        return sum_, total
    return out.index_copy(2, rows, sum_), lse.index_copy(2, rows, total)


def run_parts(
    parts: tuple[RankPart, ...], call: SharedCall, tensors: Tensors
) -> tuple[Tensor, Tensor, list[Any]]:
    """All parts one after another, merged by log-sum-exp."""
    started = [part.start(call, tensors) for part in parts]
    out, lse, state = parts[0].forward(call, tensors, started[0])
    states = [state]
    for part, begun in zip(parts[1:], started[1:], strict=True):
        more, of_more, state = part.forward(call, tensors, begun)
        out, lse = merge((out, lse), (more, of_more), None)
        states.append(state)
    return out, lse, states


def run_backward(
    parts: tuple[RankPart, ...], call: SharedCall, tensors: Tensors, states: list[Any], rest: Rest
) -> Tensors:
    """The gradients of all parts together."""
    found = [
        part.backward(call, tensors, state, rest)
        for part, state in zip(reversed(parts), reversed(states), strict=True)
    ]
    dq, dk, dv = (sum(several[1:], several[0]) for several in zip(*found, strict=True))
    return dq, dk, dv
