"""Attention of one rank, part by part: what is sent, computed and merged, forward and backward.

Tensors are as kernels see them: q (b, g, n, d), k (b, m, d), v (b, m, dv). A part gives a partial
output and its log-sum-exp for the queries of the rank; `backward` starts from those of all parts
together, so the gradients of the parts add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.graphs.cache import cache_of
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import blocks, empty, reference
from edgewise.kernels.attention.contract import Case, Implementation, Saved, Terms
from edgewise.kernels.attention.edges import gather
from edgewise.kernels.attention.registry import choose
from edgewise.kernels.edges.attention import Dropout
from edgewise.layouts.ragged import Ints

Tensors = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class PlacedDropout(Dropout):
    """Drops the pairs that one process would: queries and keys count by their tokens."""

    queries: Tensor
    keys: Tensor

    def keep(self, heads: int, i: Tensor, j: Tensor, kind: torch.dtype) -> Tensor:
        return super().keep(heads, self.queries[i], self.keys[j], kind)


class Rest(NamedTuple):
    """Of a forward pass: the results of all parts together, and the gradient of the output."""

    out: Tensor
    lse: Tensor
    dout: Tensor


class LocalAttention:
    """Attention of some queries to some keys on one device."""

    def __init__(self, graph: Pattern, queries: Ints, keys: Ints) -> None:
        self.graph, self.cache = graph, cache_of(graph)
        self.queries, self.keys = torch.from_numpy(queries), torch.from_numpy(keys)
        self.cases: dict[Any, tuple[Case, Implementation]] = {}

    def _case(
        self, tensors: Tensors, scale: float, drop: Dropout | None
    ) -> tuple[Case, Implementation]:
        q, k, v = tensors
        key = (q.shape, v.shape, q.dtype, scale, drop is not None)
        if key not in self.cases:
            (b, g, n, d), m, dv = q.shape, k.shape[1], v.shape[-1]
            features = frozenset({"lse"} if drop is None else {"lse", "dropout"})
            device = q.device.type
            case = Case(b, g, n, m, d, dv, q.dtype, device, self.graph, scale, features)
            self.cases[key] = case, _kernel(case, drop)
        return self.cases[key]

    def _terms(self, drop: Dropout | None, device: torch.device) -> Terms:
        if drop is None:
            return Terms()
        places = self.queries.to(device), self.keys.to(device)
        return Terms(drop=PlacedDropout(drop.chance, drop.seed, *places))

    def forward(
        self, tensors: Tensors, scale: float, drop: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        case, kernel = self._case(tensors, scale, drop)
        return kernel.forward(case, *tensors, self._terms(drop, tensors[0].device))

    def backward(self, tensors: Tensors, rest: Rest, scale: float, drop: Dropout | None) -> Tensors:
        case, kernel = self._case(tensors, scale, drop)
        lse = torch.where(rest.lse == -torch.inf, torch.inf, rest.lse)
        saved = Saved(*tensors, self._terms(drop, lse.device), rest.out, lse)
        found = kernel.backward(case, saved, rest.dout)
        return found.q, found.k, found.v


def _kernel(case: Case, drop: Dropout | None) -> Implementation:
    if drop is None:
        return choose(case).implementation
    known: tuple[Any, ...] = (empty, blocks, gather, reference)  # that read places from the dropout
    return next(kernel for kernel in known if kernel.refuses(case) is None)


class SharedCall(NamedTuple):
    """What all parts of a call share."""

    ranks: Ranks
    scale: float
    drop: Dropout | None = None


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
        out, lse = self.own.forward(tensors, call.scale, call.drop)
        if wait is None or self.remote is None:
            return out, lse, None
        far = self.fetch.finish(wait, k.shape[-1])
        some = q if self.queries is None else q.index_select(2, self.queries)
        merged = merge(
            (out, lse), self.remote.forward((some, *far), call.scale, call.drop), self.queries
        )
        return *merged, far

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        if self.remote is None:
            return self.own.backward(tensors, rest, call.scale, call.drop)
        q, at = tensors[0], self.queries
        some, of_rest = q, rest
        if at is not None:
            some = q.index_select(2, at)
            of_rest = Rest(*(x.index_select(2, at) for x in rest))
        far_q, far_k, far_v = self.remote.backward((some, *state), of_rest, call.scale, call.drop)
        wait = self.fetch.back(call.ranks, far_k, far_v)
        dq, dk, dv = self.own.backward(tensors, rest, call.scale, call.drop)
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
