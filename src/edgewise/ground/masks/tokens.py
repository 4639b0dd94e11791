"""The tokens of an axis, and what a relation says about each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from edgewise.ground.index import STRINGS, Grid, Index, Keys
from edgewise.ground.joins.body import SAMPLE
from edgewise.language import nodes
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges, starts_of_runs


@dataclass(frozen=True, eq=False)
class TokenAxis:
    """The tokens of one axis in key order: the position of each, and its sample if ragged."""

    position: Ints
    sample: Ints | None = None

    @staticmethod
    def dense(n: int) -> TokenAxis:
        return TokenAxis(np.arange(n))

    @staticmethod
    def ragged(lengths: Ints) -> TokenAxis:
        """The tokens of samples, one sample after another."""
        return TokenAxis(ranges(np.zeros_like(lengths), lengths), owners(pointer(lengths)))

    @property
    def code(self) -> tuple[int, ...]:
        """Equal for equal tokens."""
        if self.sample is None:
            return (self.count,)
        return (-1, *np.bincount(self.sample).tolist())

    @property
    def count(self) -> int:
        return len(self.position)

    @property
    def terms(self) -> tuple[nodes.Variable, ...]:
        """What comes before the position in an atom of the axis."""
        return () if self.sample is None else (SAMPLE,)

    @property
    def index(self) -> Index:
        """The keys of all tokens."""
        if self.sample is None:
            return Grid((self.count,))
        return Keys(torch.from_numpy(np.stack([self.sample, self.position], 1)))

    def found(self, sample: Ints | None, position: Ints) -> Ints:
        """The number of each token; -1 where there is none."""
        span = int(self.position.max(initial=0)) + 1
        inside = (position >= 0) & (position < span)
        place = np.where(inside, position, 0)
        if self.sample is None:
            return np.where(inside & (place < self.count), place, -1)
        assert sample is not None
        have, want = self.sample * span + self.position, sample * span + place
        at = np.minimum(np.searchsorted(have, want), max(self.count - 1, 0))
        return np.where(inside & (have[at] == want), at, -1) if self.count else np.full(len(at), -1)


@dataclass(frozen=True, eq=False)
class Attributes:
    """What is known of tokens: row r says that token `token[r]`, ascending, has `columns[·][r]`."""

    token: Ints
    columns: dict[str, Ints]
    count: int  # of tokens

    @property
    def functional(self) -> bool:
        """Whether no token has two rows."""
        return bool((self.token[1:] > self.token[:-1]).all())

    def take(self, rows: Ints | Bools) -> Attributes:
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Attributes(self.token[rows], columns, self.count)

    def tuples(self, names: tuple[str, ...]) -> Ints:
        """(rows, names)."""
        none = np.zeros((len(self.token), 0), np.int64)
        return np.stack([self.columns[n] for n in names], 1) if names else none

    def integers(self, names: tuple[str, ...], least: int) -> Attributes:
        """The rows whose columns are integers from `least` on."""
        fine = np.ones(len(self.token), bool)
        for name in names:
            fine &= (self.columns[name] >= least) & (self.columns[name] < STRINGS)
        return self if fine.all() else self.take(fine)

    def by_token(self, rows: Ints) -> Ints:
        """A number of each token that has a row; -1 for the others."""
        found = np.full(self.count, -1, np.int64)
        found[self.token] = rows
        return found


def extremes(found: Attributes, name: str, largest: bool) -> Attributes:
    """For each token the row with its largest, or least, value of a column."""
    column = found.columns[name]
    order = np.lexsort((-column if largest else column, found.token))
    return found.take(order[starts_of_runs(found.token[order])])
