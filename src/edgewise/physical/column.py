"""A column of values: one value for each row, all of one shape, for each sample of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from edgewise.functions import columns


@dataclass(frozen=True, eq=False)
class Column:
    """`data` is (batch, rows, value...); batch 1 and rows 1 stand for "the same in each"."""

    data: Tensor

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

    def expanded(self, rows: int) -> Column:
        """With as many rows, where one stands for all."""
        if self.rows == rows:
            return self
        return Column(self.data.expand(self.data.shape[0], rows, *self.shape))


def column(data: Tensor) -> Column:
    """A column in canonical form: n×1 is a column vector, 1×1 a scalar."""
    return Column(columns.canonical(data))


def product(left: Column, right: Column) -> Column:
    """The matrix product in each row; a scalar scales."""
    return Column(columns.product(left.data, right.data))
