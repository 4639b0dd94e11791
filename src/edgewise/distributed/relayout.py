"""Rows on other ranks in between: tokens in another order, or all tokens of some heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.local_attention import LocalAttention, Rest, SharedCall, Tensors
from edgewise.distributed.rank_parts import RankPart, run_backward, run_parts


@dataclass(frozen=True, eq=False)
class Relayout:
    """Tokens in another order on ranks, for parts that need less there."""

    sent: list[int]
    index: Tensor  # own rows in the order of the ranks they go to
    received: list[int]
    order: Tensor  # from the order in which rows arrive to ascending tokens
    parts: tuple[RankPart, ...]

    def _there(self, ranks: Ranks, x: Tensor, kind: str) -> Tensor:
        """Rows (n, ...) in the other order."""
        found = ranks.exchange(x.index_select(0, self.index), self.sent, self.received, kind)()
        return found.index_select(0, self.order)

    def _back(self, ranks: Ranks, x: Tensor, kind: str) -> Tensor:
        rows = torch.empty_like(x).index_copy_(0, self.order, x)
        found = ranks.exchange(rows, self.received, self.sent, kind)()
        return torch.empty_like(found).index_copy_(0, self.index, found)

    def forward(self, call: SharedCall, tensors: Tensors) -> tuple[Tensor, Tensor, Any]:
        q, k, v = tensors
        kind = "other order"
        rows = self._there(call.ranks, _rows_of(q, k, v), kind)
        there: Any = _split_rows(rows, q, k, v)
        out, lse, states = run_parts(self.parts, call, there)
        back = self._back(call.ranks, _rows_of(out), kind)
        sums = self._back(call.ranks, _rows_of(lse[..., None]), kind)
        (found,), (of_lse,) = _split_rows(back, out), _split_rows(sums, lse[..., None])
        return found, of_lse[..., 0], (there, states)

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        there, states = state
        kind = "other order back"
        both = self._there(call.ranks, _rows_of(rest.out, rest.dout), kind)
        out, dout = _split_rows(both, rest.out, rest.dout)
        sums = self._there(call.ranks, _rows_of(rest.lse[..., None]), kind)
        (lse,) = _split_rows(sums, rest.lse[..., None])
        grads = run_backward(self.parts, call, there, states, Rest(out, lse[..., 0], dout))
        found = _split_rows(self._back(call.ranks, _rows_of(*grads), kind), *tensors)
        return found[0], found[1], found[2]


def _rows_of(*tensors: Tensor) -> Tensor:
    """(rows, everything else) of tensors whose rows are the axis before the last."""
    flat = [x.movedim(-2, 0).reshape(x.shape[-2], -1) for x in tensors]
    return torch.cat(flat, 1)


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
class HeadsPart:
    """Ulysses: all tokens of some heads on every rank, and the graph as it is."""

    attention: LocalAttention
    counts: list[int]  # tokens of each rank
    order: Tensor | None  # to ascending tokens
    batch: int

    def forward(self, call: SharedCall, tensors: Tensors) -> tuple[Tensor, Tensor, Any]:
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
