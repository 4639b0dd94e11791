"""Parts of one softmax: outputs of disjoint sets of keys, joined by their log-sum-exps."""

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import wide


class Merged:
    """out = Σ_p exp(lse_p - lse) out_p with exp(lse) = Σ_p exp(lse_p), one part after another."""

    def __init__(self, shape: tuple[int, int, int], dv: int, like: Tensor) -> None:
        kind = wide(like.dtype)
        self.out = like.new_zeros(*shape, dv, dtype=kind)
        self.lse = like.new_full(shape, -torch.inf, dtype=kind)

    def add(self, out: Tensor, lse: Tensor, rows: slice = slice(None)) -> None:
        """A part: its output and log-sum-exp for these rows; -∞ where it has no key."""
        before = self.lse[:, :, rows]
        total = torch.logaddexp(before, lse.to(before.dtype))
        safe = torch.where(total == -torch.inf, 0, total)
        mine = self.out[:, :, rows]
        mine.mul_(torch.exp(before - safe)[..., None])
        mine.addcmul_(out.to(mine.dtype), torch.exp(lse - safe)[..., None].to(mine.dtype))
        self.lse[:, :, rows] = total
