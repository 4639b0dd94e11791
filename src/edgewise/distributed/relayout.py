"""Rows on other ranks in between: some queries and keys, or all tokens of some heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.local_attention import LocalAttention, Rest, SharedCall, Tensors
from edgewise.distributed.rank_parts import Fetch


@dataclass(frozen=True, eq=False)
class MovedQueries:
    """Queries that are computed on other ranks, where their keys are or are fetched to as well."""

    queries: Fetch
    keys: Fetch
    attention: LocalAttention

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
class HeadsPart:
    """Ulysses: all tokens of some heads on every rank, and the graph as it is."""

    attention: LocalAttention
    counts: list[int]  # tokens of each rank
    order: Tensor | None  # to ascending tokens
    batch: int

    def start(self, call: SharedCall, tensors: Tensors) -> Any:
        return None

    def forward(
        self, call: SharedCall, tensors: Tensors, started: Any
    ) -> tuple[Tensor, Tensor, Any]:
        there = tuple(self._there(call.ranks, x) for x in tensors)
        out, lse = self.attention.forward(there, call)  # type: ignore[arg-type]
        out = call.with_keys(out, lse)
        complete = lse.new_zeros(tensors[0].shape[:-1])  # nothing is merged with it
        return self._back(call.ranks, out), complete, (there, out, lse)

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        there, out, lse = state
        dout = self._there(call.ranks, rest.dout, "heads back")
        grads = self.attention.backward(there, Rest(out, lse, call.with_keys(dout, lse)), call)
        dq, dk, dv = (self._back(call.ranks, x, "heads back") for x in grads)
        return dq, dk, dv

    def _there(self, ranks: Ranks, x: Tensor, kind: str = "heads") -> Tensor:
        """(b·heads, ..., own, d) to (b·heads of this rank, ..., all, d)."""
        count, own = ranks.count, x.shape[-2]
        heads = x.unflatten(0, (self.batch, count, -1)).movedim(1, 0).movedim(-2, 1)
        flat = heads.reshape(count * own, -1)
        found = ranks.exchange(flat, [own] * count, self.counts, kind)()
        found = found if self.order is None else found.index_select(0, self.order)
        shape = (len(found), self.batch, x.shape[0] // (self.batch * count), *x.shape[1:-2])
        return found.view(*shape, x.shape[-1]).movedim(0, -2).flatten(0, 1).contiguous()

    def _back(self, ranks: Ranks, x: Tensor, kind: str = "heads") -> Tensor:
        count, own = ranks.count, self.counts[ranks.rank]
        rows = x.unflatten(0, (self.batch, -1)).movedim(-2, 0)
        if self.order is not None:
            rows = torch.empty_like(rows).index_copy_(0, self.order, rows.contiguous())
        flat = rows.reshape(len(rows), -1)
        found = ranks.exchange(flat, self.counts, [own] * count, kind)()
        found = found.view(count, own, *rows.shape[1:])
        return found.movedim(1, -2).movedim(0, 1).flatten(0, 2).contiguous()
