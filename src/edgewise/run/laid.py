"""Values of a grid that lie in memory as a product of matrices left them."""

from __future__ import annotations

import math

from torch import Tensor

from edgewise.functions.columns import canonical
from edgewise.run.column import Column


class Laid(Column):
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
        return Laid(self.grid * scalar.data.reshape(-1, *(1,) * (self.grid.ndim - 1)), self.axes)


def on_grid(value: Column, sizes: tuple[int, ...], batch: int | None = None) -> Tensor:
    """The values of a column as (batch, sizes..., value...)."""
    if isinstance(value, Laid) and value.sizes == sizes and batch in (None, len(value.grid)):
        return value.grid
    data = value.data
    return data.reshape(batch or len(data), *sizes, *value.shape)


def laid(grid: Tensor, axes: int) -> Laid:
    """With values in canonical form."""
    return Laid(canonical(grid, 1 + axes), axes)
