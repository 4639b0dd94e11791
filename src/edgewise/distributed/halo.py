"""Rows of a relation that ranks read of one another, as a differentiable exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.semi_joins import CutRelation
from edgewise.physical.opaque import opaque


@dataclass(frozen=True, eq=False)
class Halo:
    """What a rank sends and receives so that its own rows become all that it reads."""

    ranks: Ranks
    sent: list[int]
    index: Tensor  # the own rows that are sent
    received: list[int]
    far: Tensor  # the numbers of the rows that are received, ascending
    silent: bool  # no rank receives any

    @property
    def count(self) -> int:
        """How many rows are received."""
        return len(self.far)


def halo_of(relation: CutRelation, read: Tensor) -> Halo:
    """The ranks tell each other which rows they read, by their numbers, which ascend."""
    ranks, first = relation.ranks, relation.first
    far = read[(read < first) | (read >= first + len(relation.keys))]
    owner = np.searchsorted(relation.ends, far.numpy(), side="right")
    _, received, sent, wanted = ranks.request(far.numpy(), owner)
    silent = not int(ranks.gather(ranks.integers([len(far)])).sum())
    return Halo(ranks, sent, ranks.integers(wanted - first), received, far, silent)


class _Received(torch.autograd.Function):
    """Rows of other ranks; `flag` needs a gradient wherever gradients are computed, so that every
    rank takes part in the backward pass."""

    @staticmethod
    def forward(ctx: Any, halo: Halo, flag: Tensor, rows: Tensor) -> Tensor:
        ctx.halo = halo
        found = halo.ranks.exchange(rows.transpose(0, 1), halo.sent, halo.received, "halo")()
        return found.transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        halo, rows = ctx.halo, grad.transpose(0, 1)
        found = halo.ranks.exchange(rows, halo.received, halo.sent, "halo back")()
        return None, None, found.transpose(0, 1)


@opaque(
    like=lambda data, halo: torch.empty(
        data.shape[0], data.shape[1] + halo.count, *data.shape[2:], dtype=data.dtype, device="meta"
    )
)
def with_halo(data: Tensor, halo: Halo) -> Tensor:
    """(batch, own rows, value...) and after them the rows of others that are read."""
    flag = torch.zeros((), requires_grad=torch.is_grad_enabled() and data.is_floating_point())
    far = _Received.apply(halo, flag, data.index_select(1, halo.index))
    return torch.cat([data, far], 1)


class _Tied(torch.autograd.Function):
    """The first of its tensors; it passes on a share of its gradient, and 0 to the others."""

    @staticmethod
    def forward(ctx: Any, share: float, out: Tensor, *others: Tensor) -> Tensor:
        ctx.share, ctx.shapes = share, [(x.shape, x.dtype, x.device) for x in others]
        return out.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        others = [torch.zeros(s, dtype=d, device=w) for s, d, w in ctx.shapes]
        return None, grad if ctx.share == 1.0 else grad * ctx.share, *others


@opaque(like=lambda out, others, share: torch.empty(out.shape, dtype=out.dtype, device="meta"))
def tied(out: Tensor, others: list[Tensor], share: float) -> Tensor:
    """`out`, whose backward pass goes through the others: on every rank all exchanges have one.
    `share` of its gradient is of this rank, less than 1 where several have the same output."""
    used = [x for x in others if x.is_floating_point()]
    return _Tied.apply(share, out, *used) if used or share != 1.0 else out
