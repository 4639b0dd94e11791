"""Dropout by counting: what is dropped depends on the seed, the head and the pair, nothing else.

So every kernel drops the same pairs, whatever order it takes them in, and the backward pass drops
them again without having stored them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Dropout:
    """Weights are 0 with this chance, else divided by 1 - chance."""

    chance: float
    seed: int

    @property
    def least(self) -> int:
        """Pairs whose hash is below are dropped."""
        return min(int(self.chance * 2**32), WORD)

    def keep(self, heads: int, i: Tensor, j: Tensor, kind: torch.dtype) -> Tensor:
        """(heads, ...): the factor of the weight of every pair (i, j) (...) of each head."""
        h = torch.arange(heads, device=i.device).view(-1, *(1,) * max(i.ndim, j.ndim))
        row = mixed(mixed((h + self.seed) & WORD) ^ i)
        return (mixed(row ^ j) >= self.least).to(kind) / (1 - self.chance)


def mixed(x: Tensor) -> Tensor:
    """A hash of 32 bits, in int64: Wellons' lowbias32."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & WORD
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & WORD
    return x ^ (x >> 16)
