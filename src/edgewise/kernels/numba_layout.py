"""Tensors as loops compiled by numba take them: flat numbers, and where rows of heads begin.

A loop does several heads in one pass. Those that lie side by side in each row, as a projection to
all heads gives them, go together, and a row that many edges read is read once for all; else the
heads go together that share a key. No tensor is copied for its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Rows = tuple[np.ndarray, int, int, int]  # numbers, the first place, from row to row, to next head


class FlatLayout(NamedTuple):
    """A tensor as loops take it: its strides, how many numbers it spans, where rows begin."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    copied: bool  # whether the tensor of a call has other strides
    size: int
    places: list[tuple[int, int, int]]  # `Rows` of each call of a loop, without the numbers


@dataclass(frozen=True)
class Heads:
    """b × g heads of queries, where g share one key, in calls of a loop."""

    b: int
    g: int
    beside: bool  # whether heads lie side by side in each row

    @property
    def together(self) -> int:
        """How many one call does."""
        return self.b if self.beside else self.g

    @property
    def count(self) -> int:
        """How many calls there are."""
        return 1 if self.beside else self.b

    def layout(self, x: Tensor, of: Tensor | None = None) -> FlatLayout:
        """Of x (b, g, rows, width) or (b, rows, width), made from the tensor `of` of a call."""
        copied = of is not None and (x.stride(), x.dtype) != (of.stride(), of.dtype)
        wide = x if x.ndim == 4 else x[:, None].expand(-1, self.g, -1, -1)
        if not x.numel():
            return FlatLayout(x.shape, x.stride(), x.dtype, copied, 0, [(0, 0, 0)] * self.count)
        size = 1 + sum((n - 1) * s for n, s in zip(wide.shape, wide.stride(), strict=True))
        b, g, row, _ = wide.stride()
        places = [(0, row, b)] if self.beside else [(at * b, row, g) for at in range(self.b)]
        return FlatLayout(x.shape, x.stride(), x.dtype, copied, size, places)

    def empty(self, rows: int, width: int, like: Tensor) -> Tensor:
        """Memory for (b, g, rows, width), in the order of these heads."""
        if self.beside:
            return like.new_empty(rows, self.b, width).transpose(0, 1)[:, None]
        return like.new_empty(self.b, self.g, rows, width)

    def ordered(self, x: Tensor, kind: torch.dtype) -> Tensor:
        """x (b, g, rows, width) in the order of these heads, if its rows are read at random."""
        x = ready(x, kind)
        if not self.beside or x.stride(0) < x.stride(2):
            return x
        return self.empty(x.shape[2], x.shape[3], x).copy_(x)


def heads_of(b: int, g: int, *tensors: Tensor) -> Heads:
    """How the heads of tensors (b, ..., rows, width) go together."""
    some = [x.stride() for x in tensors if x.shape[-1]]
    return Heads(b, g, b > 1 and g == 1 and all(s[0] < s[-2] for s in some))


def ready(x: Tensor, kind: torch.dtype) -> Tensor:
    """In the precision of loops, with the numbers of a row side by side."""
    x = x.detach().to(kind)
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
