"""Attention of one rank, part by part: what is sent, computed and merged, forward and backward.

Tensors are as kernels see them: q (b, g, n, d), k (b, m, d), v (b, m, dv). A part gives a partial
output and its log-sum-exp for the queries of the rank; `backward` starts from those of all parts
together, so the gradients of the parts add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.local_attention import LocalAttention, Rest, SharedCall, Tensors


class RankPart(Protocol):
    """A part of the pairs of this rank's queries."""

    def forward(self, call: SharedCall, tensors: Tensors) -> tuple[Tensor, Tensor, Any]:
        """The partial output, its log-sum-exp, and what the backward pass needs."""

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        """The gradients of q, k and v."""


@dataclass(frozen=True, eq=False)
class Fetch:
    """Keys of other ranks: how many rows come from each, their order, and what is sent."""

    received: list[int]
    order: Tensor | None  # to ascending tokens, where ranks do not have consecutive ones
    sent: list[int]
    index: Tensor  # the own keys that are sent
    kind: str

    def start(self, ranks: Ranks, k: Tensor, v: Tensor) -> Any:
        both = torch.cat([k, v], -1).transpose(0, 1).index_select(0, self.index)
        return ranks.exchange(both, self.sent, self.received, self.kind)

    def finish(self, wait: Any, d: int) -> tuple[Tensor, Tensor]:
        both = wait()
        both = both if self.order is None else both.index_select(0, self.order)
        both = both.transpose(0, 1)
        return both[..., :d].contiguous(), both[..., d:].contiguous()

    def back(self, ranks: Ranks, dk: Tensor, dv: Tensor) -> Any:
        """The gradients of fetched keys, to their ranks."""
        both = torch.cat([dk, dv], -1).transpose(0, 1)
        if self.order is not None:
            both = torch.empty_like(both).index_copy_(0, self.order, both)
        return ranks.exchange(both.contiguous(), self.received, self.sent, f"{self.kind} back")


@dataclass(frozen=True, eq=False)
class ExchangePart:
    """Own keys at once, those of others when they are there."""

    own: LocalAttention
    fetch: Fetch
    remote: LocalAttention | None  # None where no rank fetches any
    queries: Tensor | None  # which queries have remote keys; None for all

    def forward(self, call: SharedCall, tensors: Tensors) -> tuple[Tensor, Tensor, Any]:
        q, k, v = tensors
        wait = None if self.remote is None else self.fetch.start(call.ranks, k, v)
        out, lse = self.own.forward(tensors, call)
        if wait is None or self.remote is None:
            return out, lse, None
        far = self.fetch.finish(wait, k.shape[-1])
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
        wait = self.fetch.back(call.ranks, far_k, far_v)
        dq, dk, dv = self.own.backward(tensors, rest, call)
        dq = dq + far_q if at is None else dq.index_add(2, at, far_q.to(dq.dtype))
        both, d = wait().transpose(0, 1), dk.shape[-1]
        dk = dk.index_add(1, self.fetch.index, both[..., :d].to(dk.dtype))
        return dq, dk, dv.index_add(1, self.fetch.index, both[..., d:].to(dv.dtype))


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
    first, *others = parts
    out, lse, state = first.forward(call, tensors)
    states = [state]
    for part in others:
        more, of_more, state = part.forward(call, tensors)
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
