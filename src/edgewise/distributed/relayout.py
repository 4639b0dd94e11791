"""Rows on other ranks in between: some queries and keys, or some of their heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.distributed.head_graphs import HeadsAttention
from edgewise.distributed.local_attention import LocalAttention, Rest, SharedCall, Tensors
from edgewise.distributed.rank_parts import Fetch


@dataclass(frozen=True, eq=False)
class MovedQueries:
    """Queries that are computed on other ranks, where their keys are or are fetched to as well."""

    queries: Fetch
    keys: Fetch
    attention: LocalAttention | HeadsAttention

    def start(self, call: SharedCall, tensors: Tensors) -> Any:
        q, k, v = tensors
        kind = "other order"
        wait = self.queries.start(call.ranks, kind, q)
        return wait, self.keys.start(call.ranks, kind, k, v)

    def forward(
        self, call: SharedCall, tensors: Tensors, started: Any
    ) -> tuple[Tensor, Tensor, Any]:
        q, v = tensors[0], tensors[2]
        there: Any = (*started[0](), *started[1]())
        out, lse = self.attention.forward(there, call)
        waits = [self.queries.back(call.ranks, "other order", x) for x in (out, lse[..., None])]
        (some,), (sums,) = (wait() for wait in waits)
        into = q.new_zeros(*q.shape[:3], v.shape[-1])
        none = lse.new_full(q.shape[:3], -torch.inf)
        at = self.queries.index
        return into.index_copy(2, at, some), none.index_copy(2, at, sums[..., 0]), there

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        kind = "other order back"
        both = self.queries.start(call.ranks, kind, rest.out, rest.dout)
        sums = self.queries.start(call.ranks, kind, rest.lse[..., None])
        (out, dout), (lse,) = both(), sums()
        grads = self.attention.backward(state, Rest(out, lse[..., 0], dout), call)
        waits = (
            self.queries.back(call.ranks, kind, grads[0]),
            self.keys.back(call.ranks, kind, *grads[1:]),
        )
        found = (*waits[0](), *waits[1]())
        places = (self.queries.index, self.keys.index, self.keys.index)
        dq, dk, dv = (
            torch.zeros_like(x).index_add(-2, at, grad.to(x.dtype))
            for x, at, grad in zip(tensors, places, found, strict=True)
        )
        return dq, dk, dv


@dataclass(frozen=True, eq=False)
class HeadGroups:
    """Some heads of the queries of several ranks, on every one of these: Ulysses, where heads are
    in as many groups as there are ranks. Results are complete, and no log-sum-exp is sent."""

    queries: Fetch
    keys: Fetch
    attention: LocalAttention | HeadsAttention
    groups: int
    batch: int

    def start(self, call: SharedCall, tensors: Tensors) -> Any:
        q, k, v = (self._by_group(x) for x in tensors)
        wait = self.queries.start(call.ranks, "heads", q)
        return wait, self.keys.start(call.ranks, "heads", k, v)

    def forward(
        self, call: SharedCall, tensors: Tensors, started: Any
    ) -> tuple[Tensor, Tensor, Any]:
        there: Any = (*started[0](), *started[1]())
        out, lse = self.attention.forward(there, call)
        out = call.with_keys(out, lse)
        (found,) = self.queries.back(call.ranks, "heads", out)()
        shape = (*tensors[0].shape[:-1], out.shape[-1])
        complete = lse.new_zeros(shape[:-1])  # nothing is merged with it
        return self._added(found, self.queries, shape), complete, (there, out, lse)

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        there, out, lse = state
        kind = "heads back"
        (dout,) = self.queries.start(call.ranks, kind, self._by_group(rest.dout))()
        grads = self.attention.backward(there, Rest(out, lse, call.with_keys(dout, lse)), call)
        return self._sent_back(call, kind, grads, tensors)

    def _sent_back(self, call: SharedCall, kind: str, grads: Tensors, tensors: Tensors) -> Tensors:
        """Gradients of the rows that were fetched, added up on their ranks."""
        waits = (
            self.queries.back(call.ranks, kind, grads[0]),
            self.keys.back(call.ranks, kind, *grads[1:]),
        )
        found = (*waits[0](), *waits[1]())
        fetches = (self.queries, self.keys, self.keys)
        dq, dk, dv = (
            self._added(grad, fetch, x.shape)
            for grad, fetch, x in zip(found, fetches, tensors, strict=True)
        )
        return dq, dk, dv

    def _by_group(self, x: Tensor) -> Tensor:
        """(batch · heads, ..., n, d) as (batch · heads of a group, ..., n · groups, d)."""
        parts = x.unflatten(0, (self.batch, self.groups, -1)).movedim(1, -2)
        return parts.flatten(-3, -2).flatten(0, 1)

    def _added(self, found: Tensor, fetch: Fetch, shape: Sequence[int]) -> Tensor:
        """Rows that were sent, at their places among all heads."""
        heads = shape[0] // self.groups
        into = found.new_zeros(heads, *shape[1:-2], shape[-2] * self.groups, shape[-1])
        return self._of_all_heads(into.index_add(-2, fetch.index, found), shape)

    def _of_all_heads(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """(batch · heads of a group, ..., n · groups, d) as (batch · heads, ..., n, d)."""
        parts = x.unflatten(0, (self.batch, -1)).unflatten(-2, (shape[-2], self.groups))
        return parts.movedim(-2, 1).flatten(0, 2)


@dataclass(frozen=True, eq=False)
class QueryKeyBlocks(HeadGroups):
    """Some heads of a block of queries and a block of keys: every query has partial results of
    several ranks, which its own merges by log-sum-exp."""

    def start(self, call: SharedCall, tensors: Tensors) -> Any:
        q, k, v = (self._by_group(x) for x in tensors)
        wait = self.queries.start(call.ranks, "blocks", q)
        return wait, self.keys.start(call.ranks, "blocks", k, v)

    def forward(
        self, call: SharedCall, tensors: Tensors, started: Any
    ) -> tuple[Tensor, Tensor, Any]:
        there: Any = (*started[0](), *started[1]())
        out, lse = self.attention.forward(there, call)
        waits = [self.queries.back(call.ranks, "blocks", x) for x in (out, lse[..., None])]
        (some,), (sums,) = (wait() for wait in waits)
        shape = (*tensors[0].shape[:-1], some.shape[-1])
        total = self._log_sums(sums, shape)
        safe = torch.where(total == -torch.inf, 0, total).index_select(-2, self.queries.index)
        shares = some.to(sums.dtype) * torch.exp(sums - safe)
        merged = self._added(shares, self.queries, shape).to(some.dtype)
        return merged, self._of_all_heads(total, shape)[..., 0], there

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        kind = "blocks back"
        both = self.queries.start(
            call.ranks, kind, self._by_group(rest.out), self._by_group(rest.dout)
        )
        sums = self.queries.start(call.ranks, kind, self._by_group(rest.lse[..., None]))
        (out, dout), (lse,) = both(), sums()
        grads = self.attention.backward(state, Rest(out, lse[..., 0], dout), call)
        return self._sent_back(call, kind, grads, tensors)

    def _log_sums(self, sums: Tensor, shape: Sequence[int]) -> Tensor:
        """log Σ exp of the parts of each query, by group."""
        at, rows = self.queries.index, shape[-2] * self.groups
        none = sums.new_full((*sums.shape[:-2], rows, 1), -torch.inf)
        most = none.scatter_reduce(-2, at[:, None].expand_as(sums), sums, "amax")
        safe = torch.where(most == -torch.inf, 0, most)
        shares = torch.exp(sums - safe.index_select(-2, at))
        return torch.zeros_like(none).index_add(-2, at, shares).log() + safe
