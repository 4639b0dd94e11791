"""A column of values: one value for each row, all of one shape, for each sample of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.functions import DEFINITIONS, columns
from edgewise.functions.columns import canonical
from edgewise.kernels import edges
from edgewise.kernels.edges import EdgeIndex
from edgewise.kernels.edges.registry import EdgeOperation, note_choice
from edgewise.physical.symbols import opaque


def _segments(x: Tensor, which: EdgeIndex, *_: Any, **options: Any) -> Tensor:
    operation = "segment_extreme" if "largest" in options else "segment_sum"
    note_choice(EdgeOperation(operation, x.shape[1], x.dtype, x.device.type))
    return torch.empty(which.rows.segments, x.shape[1], dtype=x.dtype, device="meta")


@opaque(like=_segments, operators=edges.segment_sum)
def segment_sum(x: Tensor, which: EdgeIndex, scale: Tensor | None = None) -> Tensor:
    return edges.segment_sum(x, which, None if scale is None else scale.to(x.dtype))


@opaque(like=_segments, operators=edges.segment_mean)
def segment_mean(x: Tensor, which: EdgeIndex) -> Tensor:
    return edges.segment_mean(x, which)


@opaque(like=_segments, operators=edges.segment_extreme)
def segment_extreme(x: Tensor, which: EdgeIndex, *, largest: bool) -> Tensor:
    return edges.segment_extreme(x, which, largest=largest)


MOST = (1 << 31) - 1  # entries that kernels count


@dataclass(frozen=True, eq=False)
class Column:
    """`data` is (batch, rows, value...); batch 1 and rows 1 stand for "the same in each"."""

    data: Tensor
    lazy = False  # whether rows are written out only where someone reads them

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value."""
        return tuple(self.data.shape[2:])

    @property
    def rank(self) -> int:
        return self.data.ndim - 2

    @property
    def rows(self) -> int:
        return self.data.shape[1]

    def take(self, rows: Tensor | None) -> Column:
        """The values at `rows`; None means all, in order."""
        return self if rows is None else Column(self.data.index_select(1, rows))

    def times(self, scalar: Column) -> Column:
        """Every row times a scalar of its own, or all times one."""
        return Column(self.data * scalar.spread(self.rank))

    def spread(self, rank: int) -> Tensor:
        """Data with unit axes after a scalar, so that it meets values of `rank` axes."""
        return self.data.reshape(*self.data.shape, *(1,) * (rank - self.rank))


class Gathered(Column):
    """Rows of another column, each times a scalar: written out only where someone reads them."""

    def __init__(self, base: Tensor, which: EdgeIndex, scale: Tensor | None = None) -> None:
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "which", which)
        object.__setattr__(self, "scale", scale)  # (batch, rows)

    lazy = True
    base: Tensor
    which: EdgeIndex
    scale: Tensor | None

    @property
    def data(self) -> Tensor:
        found = self.base.index_select(1, self.which.rows.index)
        if self.scale is None:
            return found
        return found * self.scale.reshape(*self.scale.shape, *(1,) * self.rank)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.base.shape[2:])

    @property
    def rank(self) -> int:
        return self.base.ndim - 2

    @property
    def rows(self) -> int:
        return self.which.edges

    def times(self, scalar: Column) -> Column:
        if scalar.rows != self.rows or scalar.data.numel() > MOST:
            return super().times(scalar)
        scale = scalar.data if self.scale is None else self.scale * scalar.data
        return Gathered(self.base, self.which, scale)

    def aggregates(self, name: str) -> bool:
        """Whether an aggregation needs no row written out."""
        kernel = DEFINITIONS[name].kernel
        return kernel in ("sum", "mean") or (kernel is not None and self.scale is None)

    def aggregated(self, name: str) -> Tensor:
        """The sum, mean, largest or smallest of each segment."""
        kernel, batch = DEFINITIONS[name].kernel, self.base.shape[0]
        each = self.base.flatten(2) if self.rank else self.base.unsqueeze(2)
        if self.scale is not None and len(self.scale) != 1:
            return self._in_samples(kernel == "mean", each, self.scale)
        flat = each.transpose(0, 1).flatten(1)
        if kernel in ("max", "min"):
            found = segment_extreme(flat, self.which, largest=kernel == "max")
        elif self.scale is None:
            found = (segment_mean if kernel == "mean" else segment_sum)(flat, self.which)
        else:
            found = segment_sum(flat, self.which, self.scale.squeeze(0))
            if kernel == "mean":
                found = found / self.which.rows.ptr.diff()[:, None]
        return found.reshape(len(found), batch, *self.shape).transpose(0, 1)

    def _in_samples(self, averages: bool, each: Tensor, scale: Tensor) -> Tensor:
        """The same where every sample has scales of its own."""
        batch, rest = len(scale), each.shape[1:]
        flat = each.expand(batch, *rest).reshape(batch * rest[0], rest[1])
        found = segment_sum(flat, self.which.repeated(batch), scale.flatten())
        found = found.reshape(batch, self.which.rows.segments, *self.shape)
        if averages:
            found = found / self.which.rows.ptr.diff().reshape(-1, *(1,) * self.rank)
        return found


def column(data: Tensor) -> Column:
    """A column in canonical form: n×1 is a column vector, 1×1 a scalar."""
    return Column(columns.canonical(data))


def product(left: Column, right: Column) -> Column:
    """The matrix product in each row; a scalar scales."""
    if right.lazy and left.rank == 0:
        return right.times(left)
    if left.lazy and right.rank == 0:
        return left.times(right)
    return Column(columns.product(left.data, right.data))


class GridColumn(Column):
    """`grid` is (batch, axes..., value...), in any order in memory: an attention reads it as it
    lies, and it is copied into the order of rows only where someone reads rows."""

    def __init__(self, grid: Tensor, axes: int) -> None:
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "axes", axes)

    lazy = True
    grid: Tensor
    axes: int

    @property
    def data(self) -> Tensor:
        return self.grid.flatten(1, self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.grid.shape[1 : 1 + self.axes])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.grid.shape[1 + self.axes :])

    @property
    def rank(self) -> int:
        return self.grid.ndim - 1 - self.axes

    @property
    def rows(self) -> int:
        return math.prod(self.sizes)

    def times(self, scalar: Column) -> Column:
        if scalar.rows != 1:
            return super().times(scalar)
        return GridColumn(
            self.grid * scalar.data.reshape(-1, *(1,) * (self.grid.ndim - 1)), self.axes
        )


def on_grid(value: Column, sizes: tuple[int, ...], batch: int | None = None) -> Tensor:
    """The values of a column as (batch, sizes..., value...)."""
    if isinstance(value, GridColumn) and value.sizes == sizes and batch in (None, len(value.grid)):
        return value.grid
    data = value.data
    return data.reshape(batch or len(data), *sizes, *value.shape)


def laid(grid: Tensor, axes: int) -> GridColumn:
    """With values in canonical form."""
    return GridColumn(canonical(grid, 1 + axes), axes)
