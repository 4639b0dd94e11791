"""Rows whose keys stay in a table on disk: `edgewise.data.on_disk` makes them."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from edgewise.errors import counted
from edgewise.functions import columns
from edgewise.ground.index import Constants
from edgewise.ground.joins.disk import DiskTable, KeysOnDisk
from edgewise.ground.source import Source
from edgewise.inputs.kinds import rows
from edgewise.inputs.sources import refuse_arity


class NamedTable(DiskTable, Protocol):
    """A table on disk with the strings that some of its keys are, in order."""

    strings: tuple[str, ...]

    def renumbered(self, constants: Constants) -> NamedTable:
        """The same keys by the numbers that strings have among these constants."""

    def remove(self) -> None:
        """Remove what is on disk; without this it goes with the table."""


class rows_on_disk(rows):
    """Rows of a table: its values, if it has any, and its keys where they are.

    Whatever reads `keys` reads all of them, as far as the table may.
    """

    index: KeysOnDisk
    table: NamedTable

    def __init__(
        self,
        table: NamedTable,
        values: Tensor | None,
        are_combined: bool,
        *,
        has_precision: bool = False,
        index: KeysOnDisk | None = None,
    ) -> None:
        found = {"table": table, "index": index or KeysOnDisk(table), "values": values}
        found |= {"strings": table.strings, "are_combined": are_combined}
        found |= {"has_precision": has_precision or values is None}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def keys(self) -> Tensor:
        return self.index.keys.T

    def __repr__(self) -> str:
        named = f", {counted(len(self.strings), 'string')}" if self.strings else ""
        values = "" if self.values is None else f", values {tuple(self.values.shape)}"
        return (
            f"<rows on disk: {self.table.rows:,} keys of {self.table.arity} terms{named}{values}>"
        )

    def tensors(self) -> list[Tensor]:
        return [] if self.values is None else [self.values]

    def in_precision(self, dtype: torch.dtype) -> rows_on_disk:
        if self.has_precision or self.values is None:
            return self
        values = self.values.to(dtype)
        return rows_on_disk(
            self.table, values, self.are_combined, has_precision=True, index=self.index
        )

    def with_own_keys(self) -> rows_on_disk:
        return self  # nobody else writes into the table

    def renumbered(self, constants: Constants) -> rows_on_disk:
        if not self.strings or self.strings == tuple(constants.strings):
            return self
        table, known = self.table.renumbered(constants), self.has_precision
        return rows_on_disk(table, self.values, self.are_combined, has_precision=known)

    def source(self, name: str, arity: int) -> Source:
        count = self.table.rows
        refuse_arity(name, (self.table.arity, count), arity)
        ones = torch.ones(()).expand(count)
        stored = ones if self.values is None else columns.canonical(self.values, 1)
        return Source(self.index.or_grid(), stored=stored, shape=tuple(stored.shape[1:]))
