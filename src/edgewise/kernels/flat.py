"""Tensors as loops compiled by numba take them: flat numbers, and where rows of heads begin.

A loop does several heads in one pass. Those that lie side by side in each row, as a projection to
all heads gives them, go together, and a row that many edges read is read once for all; else the
heads go together that share a key. No tensor is copied for its order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Rows = tuple[np.ndarray, int, int, int]  # numbers, the first place, from row to row, to next head
Places = list[tuple[int, int, int]]  # the same of each call of a loop, without the numbers


class FlatLayout(NamedTuple):
    """A tensor as loops take it: its strides, how many numbers it spans, where rows begin."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    copied: bool  # whether the tensor of a call lies otherwise
    size: int
    places: Places

    def empty(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)


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

    def rows(self, x: Tensor | None, like: Tensor) -> list[Rows]:
        """Of x (b, g, rows, width), for each call; no numbers where there is no x."""
        if x is None or not x.numel():
            return [(like.new_empty(0).numpy(), 0, 0, 0)] * self.count
        size, places = self.places(x)
        numbers = x.as_strided((size,), (1,)).numpy()
        return [(numbers, *place) for place in places]

    def places(self, x: Tensor) -> tuple[int, Places]:
        """How many numbers x (b, g, rows, width) spans, and where the rows of each call begin."""
        if not x.numel():
            return 0, [(0, 0, 0)] * self.count
        (heads, groups, count, width), (b, g, row, one) = x.shape, x.stride()
        size = 1 + (heads - 1) * b + (groups - 1) * g + (count - 1) * row + (width - 1) * one
        if self.beside:
            return size, [(0, row, b)]
        return size, [(at * b, row, g) for at in range(self.b)]

    def layout(self, x: Tensor, of: Tensor | None = None) -> FlatLayout:
        """Of x (b, g, rows, width) or (b, rows, width), made from the tensor `of` of a call."""
        copied = of is not None and (x.stride(), x.dtype) != (of.stride(), of.dtype)
        wide = x if x.ndim == 4 else x[:, None].expand(-1, self.g, -1, -1)
        return FlatLayout(x.shape, x.stride(), x.dtype, copied, *self.places(wide))

    def shared(self, x: Tensor | None, like: Tensor) -> list[Rows]:
        """The same of x (b, rows, width), one for all queries that share it."""
        return self.rows(None if x is None else x[:, None].expand(-1, self.g, -1, -1), like)

    def empty(self, rows: int, width: int, like: Tensor) -> Tensor:
        """Room for (b, g, rows, width), in the order of these heads."""
        if self.beside:
            return like.new_empty(rows, self.b, width).transpose(0, 1)[:, None]
        return like.new_empty(self.b, self.g, rows, width)

    def ordered(self, x: Tensor, kind: torch.dtype) -> Tensor:
        """x (b, g, rows, width) in the order of these heads, if its rows are read at random."""
        x = ready(x, kind)
        if not self.beside or x.stride(0) < x.stride(2):
            return x
        return self.empty(x.shape[2], x.shape[3], x).copy_(x)

    def calls(self, *arguments: Any) -> list[tuple[Any, ...]]:
        """The arguments of each call: lists hold one for each, others are for all."""
        return [
            tuple([x[at] if isinstance(x, list) else x for x in arguments])
            for at in range(self.count)
        ]


def heads_of(b: int, g: int, *tensors: Tensor) -> Heads:
    """How the heads of tensors (b, ..., rows, width) go together."""
    some = [x.stride() for x in tensors if x.shape[-1]]
    return Heads(b, g, b > 1 and g == 1 and all(s[0] < s[-2] for s in some))


def ready(x: Tensor, kind: torch.dtype) -> Tensor:
    """In the precision of loops, with the numbers of a row side by side."""
    x = x.detach().to(kind)
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def numbers_of(layouts: Iterable[FlatLayout], tensors: Iterable[Tensor]) -> list[np.ndarray]:
    """The flat numbers of each tensor, of a copy where it lies otherwise."""
    found = []
    for (shape, stride, dtype, copied, size, _), x in zip(layouts, tensors, strict=True):
        x = x.detach()
        if copied:
            x = torch.empty_strided(shape, stride, dtype=dtype).copy_(x)
        found.append(x.as_strided((size,), (1,)).numpy())
    return found


def by_call(layouts: Iterable[FlatLayout]) -> list[tuple[tuple[int, int, int], ...]]:
    """Where rows of all these tensors begin, for each call of a loop."""
    return list(zip(*(layout.places for layout in layouts), strict=True))
