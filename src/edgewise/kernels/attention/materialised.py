"""A tile of attention with its scores materialised, and partial results of a softmax merged.

Shapes are (b, g, ..., rows, d) for queries and (b, ..., columns, d) for keys; a tile has the axes
after g. `lse` is +∞ in rows without keys.
"""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, Terms, wide
from edgewise.kernels.attention.terms import Scores, TermGrads, Tile

PAIR = {"cpu": 3.0, "cuda": 12.0}  # the time of a pair in pairs of a fused product
NUMBERS = 1 << 22  # scores that are written out at a time


def scores_of(case: Case, terms: Terms, q: Tensor, k: Tensor, tile: Tile) -> Scores:
    kind = wide(case.dtype)
    dot = (q.to(kind) @ k[:, None].to(kind).mT) * case.scale
    return Scores(case, terms, tile, dot)


def forward(
    case: Case, terms: Terms, tensors: tuple[Tensor, Tensor, Tensor], tile: Tile
) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp of the rows of a tile, in the wide precision."""
    q, k, v = tensors
    scores = scores_of(case, terms, q, k, tile)
    s = scores.values()
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - torch.where(lse == -torch.inf, torch.inf, lse)[..., None])
    keep = scores.keep()
    p = p if keep is None else p * keep
    return p @ v[:, None].to(p.dtype), lse


def backward(
    case: Case,
    terms: Terms,
    tensors: tuple[Tensor, Tensor, Tensor],
    rows: tuple[Tensor, Tensor, Tensor],
    tile: Tile,
    total: TermGrads,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq (b, g, ...), dk and dv (b, ...); `rows` are dout, Σ dout·out and the log-sum-exp."""
    q, k, v = tensors
    dout, delta, lse = rows
    scores = scores_of(case, terms, q, k, tile)
    p = torch.exp(scores.values() - lse[..., None])
    dout = dout.to(p.dtype)
    dp = dout @ v[:, None].to(p.dtype).mT
    keep = scores.keep()
    dropped = p if keep is None else p * keep
    ds = dropped * dp - p * delta[..., None]
    dv = (dropped.mT @ dout).sum(1)
    ds = scores.backward(ds, total) * case.scale
    dk = (ds.mT @ q.to(ds.dtype)).sum(1)
    return ds @ k[:, None].to(ds.dtype), dk, dv


class Merged:
    """out = Σ_p exp(lse_p - lse) out_p with exp(lse) = Σ_p exp(lse_p), one part after another."""

    out: Tensor
    lse: Tensor

    def __init__(self, rows: int) -> None:
        self.all, self.started = slice(0, rows), False

    def add(self, out: Tensor, lse: Tensor, rows: slice | None = None) -> None:
        """A part: its output and log-sum-exp, for these rows or all; -∞ where it has no key."""
        if not self.started:
            self.started = True
            if rows is None or rows == self.all:
                self.out, self.lse = out.to(lse.dtype), lse
                return
            shape = (*lse.shape[:2], self.all.stop)
            self.out = out.new_zeros(*shape, out.shape[-1], dtype=lse.dtype)
            self.lse = lse.new_full(shape, -torch.inf)
        rows = self.all if rows is None else rows
        before = self.lse[:, :, rows]
        total = torch.logaddexp(before, lse.to(before.dtype))
        safe = torch.where(total == -torch.inf, 0, total)
        mine = self.out[:, :, rows]
        mine.mul_(torch.exp(before - safe)[..., None])
        mine.addcmul_(out.to(mine.dtype), torch.exp(lse - safe)[..., None].to(mine.dtype))
        self.lse[:, :, rows] = total
