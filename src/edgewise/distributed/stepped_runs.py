"""The keys of trapezoids as runs at regular steps, counted and united without listing them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewise.distributed.token_sets import EMPTY, TokenSet, count_inside
from edgewise.layouts import Trapezoids
from edgewise.layouts.ragged import Bools, Ints, owners, pointer, ranges

INTERVALS = 64  # of a set, which are counted one after another


@dataclass(frozen=True, eq=False)
class SteppedRuns:
    """For each trapezoid the keys of all its rows: `many` runs of `wide` keys, which start at
    start, start + step, ...

    >>> runs = SteppedRuns(np.array([1]), np.array([3]), np.array([2]), np.array([4]))
    >>> runs.every().list().tolist(), runs.inside(TokenSet.of([2], [6])).tolist()
    ([1, 2, 5, 6, 9, 10], [2])
    """

    start: Ints
    many: Ints
    wide: Ints
    step: Ints

    @classmethod
    def of(cls, p: Trapezoids) -> SteppedRuns:
        """Of some trapezoids, in their order, which stop after their last key."""
        height = p.bottom - p.top
        reach = p.stop + p.dstop * (height - 1) - p.start
        wide = np.where(p.dstart == 1, height, 1)  # keys side by side at every step
        single = (p.step == 1) | (wide >= p.step)
        many = np.where(single, 1, (p.stop - p.start - 1) // p.step + 1)
        return cls(p.start, many, np.where(single, reach, wide), p.step)

    def __getitem__(self, some: Ints | Bools) -> SteppedRuns:
        return SteppedRuns(self.start[some], self.many[some], self.wide[some], self.step[some])

    def listed(self) -> tuple[Ints, Ints]:
        """The bounds of every run."""
        if (self.many == 1).all():
            return self.start, self.start + self.wide
        start = ranges(self.start, self.many, self.step)
        return start, start + np.repeat(self.wide, self.many)

    def every(self) -> TokenSet:
        """The keys of all trapezoids."""
        if not len(self.start):
            return EMPTY
        low = int(self.start.min())
        size = int((self.start + (self.many - 1) * self.step + self.wide).max()) - low + 1
        steps = np.unique(self.step[self.many > 1]).tolist()
        if self.many.sum() <= size * (1 + len(steps)):
            return TokenSet.of(*self.listed())
        changes = np.zeros(size, np.int64)  # how many runs start at a key, less those that stop
        for step in [0, *steps]:
            some = self[(self.many > 1) & (self.step == step) if step else self.many == 1]
            start, length = some.start - low, some.many * step
            changes += _marks(start, length, step, size)
            changes -= _marks(start + some.wide, length, step, size)
        bounds = np.flatnonzero(np.diff(np.cumsum(changes) > 0, prepend=False)) + low
        return TokenSet(bounds[::2], bounds[1::2])

    def inside(self, tokens: TokenSet) -> Ints:
        """How many keys of each trapezoid a set has, a key of two runs twice."""
        if len(tokens.start) > INTERVALS:
            each = count_inside(*self.listed(), tokens)
            return np.bincount(owners(pointer(self.many)), each, len(self.many)).astype(np.int64)
        found = np.zeros(len(self.many), np.int64)
        for low, high in zip(tokens.start.tolist(), tokens.stop.tolist(), strict=True):
            found += self._below(high) - self._below(low)
        return found

    def _below(self, key: int) -> Ints:
        """How many keys are less than one."""
        ahead = np.maximum(key - self.start, 0)
        runs = np.minimum(ahead // self.step, self.many - 1)  # that end before the last one begun
        return runs * self.wide + np.minimum(ahead - runs * self.step, self.wide)


def _marks(start: Ints, length: Ints, step: int, size: int) -> Ints:
    """How many progressions have each number: start, start + step, ... below start + length; with
    `step` 0, how many have it as their start."""
    if not step:
        return np.bincount(start, minlength=size)
    rows = -(-max(size, int((start + length).max()) + 1) // step)
    marks = np.bincount(start, minlength=rows * step)
    marks -= np.bincount(start + length, minlength=rows * step)
    return marks.reshape(rows, step).cumsum(0).reshape(-1)[:size]
