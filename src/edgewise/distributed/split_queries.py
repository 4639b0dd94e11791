"""Queries whose keys are on all ranks: computed in parts, which are merged by log-sum-exp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.local_attention import LocalAttention, Rest, SharedCall, Tensors
from edgewise.distributed.traffic import cells_of
from edgewise.layouts.ragged import Ints


@dataclass(frozen=True, eq=False)
class SplitQueries:
    """Queries with keys on all ranks: each computes its part of them, and they are merged.

    The queries of all ranks are in the order of their ranks, `counts[r]` of rank r; `mine` are
    those of this rank among its own.
    """

    attention: LocalAttention
    counts: Ints
    mine: Tensor
    order: Tensor | None  # from the order of ranks to ascending tokens

    def start(self, call: SharedCall, tensors: Tensors) -> Any:
        return self._spread(call.ranks, tensors[0].index_select(2, self.mine), "queries")

    def forward(
        self, call: SharedCall, tensors: Tensors, started: Any
    ) -> tuple[Tensor, Tensor, Any]:
        q, k, v = tensors
        every = started()
        out, lse = self.attention.forward((every, k, v), call)
        out, lse = self._merged(call.ranks, self._unsorted(out), self._unsorted(lse))
        into = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype, device=q.device)
        sums = lse.new_full(q.shape[:3], -torch.inf)
        return into.index_copy(2, self.mine, out), sums.index_copy(2, self.mine, lse), every

    def backward(self, call: SharedCall, tensors: Tensors, state: Any, rest: Rest) -> Tensors:
        _, k, v = tensors
        mine = [x.index_select(2, self.mine) for x in rest]
        ranks, kind = call.ranks, "queries back"
        wait = self._spread(ranks, torch.cat([mine[0], mine[2]], -1), kind)
        lse = self._spread(ranks, mine[1][..., None], kind)()[..., 0]
        both = wait()
        dv_ = rest.out.shape[-1]
        of_all = Rest(both[..., :dv_].contiguous(), lse.contiguous(), both[..., dv_:].contiguous())
        dq, dk, dv = self.attention.backward((state, k, v), of_all, call)
        found = self._summed(ranks, self._unsorted(dq))
        zero = torch.zeros_like(tensors[0])
        return zero.index_copy(2, self.mine, found.to(zero.dtype)), dk, dv

    def _spread(self, ranks: Ranks, x: Tensor, kind: str) -> Callable[[], Tensor]:
        """The queries of all ranks, in ascending order, from those of this one (b, g, own, d)."""
        own = x.permute(2, 0, 1, 3).contiguous()
        sent = [len(own)] * ranks.count
        wait = ranks.exchange(own.repeat(ranks.count, 1, 1, 1), sent, self.counts.tolist(), kind)

        def finish() -> Tensor:
            found = wait()
            found = found if self.order is None else found.index_select(0, self.order)
            return found.permute(1, 2, 0, 3).contiguous()

        return finish

    def _unsorted(self, x: Tensor) -> Tensor:
        """From ascending tokens to the order of ranks."""
        return x if self.order is None else torch.empty_like(x).index_copy_(2, self.order, x)

    def _merged(self, ranks: Ranks, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        kind = "partial results"
        parts = self._to_mergers(ranks, out, kind)
        sums = self._to_mergers(ranks, lse[..., None], kind)[..., 0]
        total = torch.logsumexp(sums, 0)
        safe = torch.where(total == -torch.inf, 0, total)
        merged = (parts.to(total.dtype) * torch.exp(sums - safe)[..., None]).sum(0).to(out.dtype)
        found = self._to_owners(ranks, merged, out, kind)
        return found, self._to_owners(ranks, total[:, None], lse[..., None], kind)[..., 0]

    def _summed(self, ranks: Ranks, dq: Tensor) -> Tensor:
        parts = self._to_mergers(ranks, dq, "partial results back")
        return self._to_owners(ranks, parts.sum(0), dq, "partial results back")

    def _cells(self, ranks: Ranks, like: Tensor) -> tuple[Ints, Ints]:
        """The bounds of cells by the rank that merges them, and by that of their query."""
        each = like.shape[0] * like.shape[1]
        ends = np.append(0, np.cumsum(self.counts)) * each
        return cells_of(int(ends[-1]), ranks.count), ends

    def _to_mergers(self, ranks: Ranks, x: Tensor, kind: str) -> Tensor:
        """(ranks, cells, d): the parts of the cells that this rank merges."""
        bounds, _ = self._cells(ranks, x)
        flat = x.permute(2, 0, 1, 3).reshape(-1, x.shape[-1])
        sent = np.diff(bounds)
        own = int(sent[ranks.rank])
        found = ranks.exchange(flat, sent.tolist(), [own] * ranks.count, kind)()
        return found.view(ranks.count, own, x.shape[-1])

    def _to_owners(self, ranks: Ranks, cells: Tensor, like: Tensor, kind: str) -> Tensor:
        """(b, g, own queries, d), from the cells that ranks merged."""
        bounds, ends = self._cells(ranks, like)
        low = np.maximum(bounds[:-1, None], ends[None, :-1])  # merger × owner
        high = np.minimum(bounds[1:, None], ends[None, 1:])
        both = np.maximum(high - low, 0)
        sent, received = both[ranks.rank].tolist(), both[:, ranks.rank].tolist()
        found = ranks.exchange(cells.contiguous(), sent, received, kind)()
        found = found.view(-1, like.shape[0], like.shape[1], like.shape[-1])
        return found.permute(1, 2, 0, 3)
