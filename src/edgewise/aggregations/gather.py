"""Sums of gathered rows, none of which is written out: yᵢ = Σ_e sₑ · x[rowₑ], e in segment i."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from edgewise.aggregations.gather_operator import bags, gather_sum
from edgewise.layouts.segments import Segments

CHUNK = 1 << 12  # pairs whose two rows fit into a cache


@dataclass(frozen=True, eq=False)
class Gather:
    """A sparse 0/1 matrix, segments × rows of a source, as CSR both ways.

    `order` puts entries, which are listed by segment, into the order of the rows they read.
    """

    ids: Tensor  # (entries,) ascending
    rows: Tensor  # (entries,)
    ptr: Tensor  # (segments + 1,)
    order: Tensor | None
    back_ptr: Tensor  # (rows + 1,)

    @cached_property
    def back(self) -> Gather:
        """The transposed matrix; its entries are listed by row."""
        assert self.order is not None
        return Gather(
            self.rows.index_select(0, self.order),
            self.ids.index_select(0, self.order),
            self.back_ptr,
            None,
            self.ptr,
        )


def gather(rows: Tensor, parts: Segments, size: int) -> Gather:
    """Segments of entries that read `rows` of a source of that size; segments are in order.

    >>> from edgewise.layouts.segments import segments
    >>> which = gather(torch.tensor([2, 0, 2]), segments(torch.tensor([0, 0, 1]), 2), 3)
    >>> total(torch.tensor([[1.0], [2.0], [3.0]]), None, which).tolist()
    [[4.0], [3.0]]
    """
    ids, rows = parts.ids.int(), rows.int()
    found = Gather(
        ids,
        rows,
        _pointers(ids, parts.count),
        rows.argsort(stable=True).int(),
        _pointers(rows, size),
    )
    found.back  # noqa: B018 worked out when grounding, not in a step
    return found


def _pointers(ids: Tensor, count: int) -> Tensor:
    ends = torch.bincount(ids, minlength=count).cumsum(0)
    return torch.nn.functional.pad(ends, (1, 0)).int()


def total(x: Tensor, scale: Tensor | None, which: Gather) -> Tensor:
    """Σ_e sₑ · x[rowₑ] for each segment: x is (rows, d), s is (entries,) or all ones."""
    if get_proxy_mode() is not None:
        assert which.order is not None
        return gather_sum(x, scale, which.ids, which.rows, which.ptr, which.order, which.back_ptr)
    return _Total.apply(x, scale, which, False)


class _Total(torch.autograd.Function):
    """`back` sums along the transposed matrix; scales are always listed by segment."""

    @staticmethod
    def forward(x: Tensor, scale: Tensor | None, which: Gather, back: bool) -> Tensor:
        if back and scale is not None and which.order is not None:
            scale = scale.index_select(0, which.order)
        side = which.back if back else which
        scale = None if scale is None else scale.contiguous()
        return bags(x.contiguous(), scale, side.rows, side.ptr)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, scale, ctx.which, ctx.back = inputs
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, scale = ctx.saved_tensors
        for_x = for_scale = None
        if ctx.needs_input_grad[0]:
            for_x = _Total.apply(grad, scale, ctx.which, not ctx.back)
        if ctx.needs_input_grad[1]:
            pair = (x, grad) if ctx.back else (grad, x)
            for_scale = _Dots.apply(*pair, ctx.which)
        return for_x, for_scale, None, None


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(y: Tensor, x: Tensor, which: Gather) -> Tensor:
        if torch.compiler.is_compiling():  # one loop, nothing written out
            return (y.index_select(0, which.ids) * x.index_select(0, which.rows)).sum(-1)
        found = [
            (y.index_select(0, i) * x.index_select(0, j)).sum(-1)
            for i, j in zip(which.ids.split(CHUNK), which.rows.split(CHUNK), strict=True)
        ]
        return torch.cat(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        y, x, ctx.which = inputs
        ctx.save_for_backward(y, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        y, x = ctx.saved_tensors
        for_y = _Total.apply(x, grad, ctx.which, False) if ctx.needs_input_grad[0] else None
        for_x = _Total.apply(y, grad, ctx.which, True) if ctx.needs_input_grad[1] else None
        return for_y, for_x, None
