"""The rows that a relation has, and what an edit does to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import show
from edgewise.ground.index import STRINGS, Constants, Index, Keys, index_of, rows_of, union_of


@dataclass(frozen=True, eq=False)
class Table:
    """`data` is (rows, value...), in the order of the index."""

    index: Index
    data: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value."""
        return tuple(self.data.shape[1:])

    def rows(self, some: Tensor | None) -> Tensor:
        return self.data if some is None else self.data[some]

    def at(self, keys: Tensor) -> Table:
        """The rows of those keys that hold; keys are sorted."""
        rows = rows_of(self.index, keys)
        rows = rows[rows >= 0]
        return Table(Keys(self.index.keys[rows]), self.data[rows])

    def without(self, keys: Tensor) -> Table:
        """The same without some keys."""
        left = torch.ones(self.index.rows, dtype=torch.bool)
        rows = rows_of(self.index, keys)
        left[rows[rows >= 0]] = False
        if bool(left.all()):
            return self
        return Table(index_of(self.index.keys[left]), self.data[left.to(self.data.device)])

    def with_rows(self, keys: Tensor, values: Tensor) -> Table:
        """The same with values set at keys, new ones among them; keys are sorted."""
        if not self.index.rows:
            return Table(index_of(keys), values)
        index, rows = self.index, rows_of(self.index, keys)
        if bool((rows < 0).any()):
            index, rows = union_of(index, keys)
        if self.data.shape[1:] != values.shape[1:]:
            return Table(index, self._replaced(index, keys, values))
        if index is self.index:
            data = self.data.clone()
        else:
            data = values.new_empty(index.rows, *values.shape[1:])
            old, rows = rows[: -len(keys)], rows[-len(keys) :]
            data[old] = self.data
        data[rows] = values
        return Table(index, data)

    def _replaced(self, index: Index, keys: Tensor, values: Tensor) -> Tensor:
        """Values of another shape can only replace all that were there."""
        if index.rows != len(keys):
            raise ShapeMismatch(
                f"new values are {show(tuple(values.shape[1:]))}, those before "
                f"{show(tuple(self.data.shape[1:]))}",
                help="a compiled relation has values of one shape",
            )
        return values

    def recoded(self, old: Constants, new: Constants) -> Table:
        """The same where strings have the numbers of other constants."""
        return Table(index_of(coded(self.index.keys, old, new)), self.data)


def coded(keys: Tensor, old: Constants, new: Constants) -> Tensor:
    """Keys by the numbers that strings have in another order; -1 for a string that it lacks."""
    if not old.strings:
        return keys
    ranks = torch.tensor([new.code(s) if new.knows(s) else -1 for s in old.strings])
    is_string = keys >= STRINGS
    moved = ranks[(keys - STRINGS).clamp(min=0, max=len(ranks) - 1)]
    return torch.where(is_string, moved, keys)


@dataclass(frozen=True, eq=False)
class Change:
    """The keys (rows, arity) of a relation that are new, gone, or have another value."""

    added: Tensor
    removed: Tensor
    changed: Tensor

    @property
    def keys(self) -> list[Tensor]:
        return [self.added, self.removed, self.changed]

    def __bool__(self) -> bool:
        return any(map(len, self.keys))


def change_of(old: Table | None, new: Table | None, keys: Tensor) -> Change:
    """What differs between two tables of a relation at some keys."""
    nowhere = torch.full((len(keys),), -1)
    before = nowhere if old is None else rows_of(old.index, keys)
    after = nowhere if new is None else rows_of(new.index, keys)
    both = ((before >= 0) & (after >= 0)).nonzero()[:, 0]
    if old is not None and new is not None and old.data.shape[1:] == new.data.shape[1:]:
        one, other = old.data[before[both]], new.data[after[both]]
        differ = (one != other) | (one.signbit() != other.signbit())  # 1 / -0 is another infinity
        both = both[differ.reshape(len(both), -1).any(1).cpu()] if len(both) else both
    return Change(keys[(before < 0) & (after >= 0)], keys[(before >= 0) & (after < 0)], keys[both])
