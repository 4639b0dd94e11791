"""Sets of tokens as sorted disjoint intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgewise.layouts.ragged import Ints, pointer, ranges


@dataclass(frozen=True, eq=False)
class TokenSet:
    """{t : start[k] ≤ t < stop[k] for some k}; intervals ascend and do not touch.

    >>> a, b = TokenSet.of([0, 4], [3, 9]), TokenSet.of([2], [5])
    >>> (a - b).list().tolist(), (a & b).count
    ([0, 1, 5, 6, 7, 8], 2)
    """

    start: Ints
    stop: Ints

    @classmethod
    def of(cls, start: object, stop: object) -> TokenSet:
        """The union of any intervals."""
        low, high = np.asarray(start, np.int64), np.asarray(stop, np.int64)
        if len(low) and not (low < high).all():
            low, high = low[low < high], high[low < high]
        if not len(low):
            return EMPTY
        if not (low[1:] > high[:-1]).all():
            order = np.argsort(low, kind="stable")
            low, high = low[order], np.maximum.accumulate(high[order])
            opens = np.append(True, low[1:] > high[:-1])
            low, high = low[opens], high[np.append(np.flatnonzero(opens)[1:] - 1, len(high) - 1)]
        return cls(low, high)

    @classmethod
    def of_tokens(cls, tokens: Ints) -> TokenSet:
        """From distinct tokens that ascend."""
        return cls.of(tokens, tokens + 1)

    @property
    def count(self) -> int:
        """How many tokens there are."""
        return int((self.stop - self.start).sum())

    def list(self) -> Ints:
        """The tokens, ascending."""
        return ranges(self.start, self.stop - self.start)

    @cached_property
    def _before(self) -> Ints:
        return pointer(self.stop - self.start)

    def place(self, tokens: Ints) -> Ints:
        """The index of each token among those of the set, if it is one."""
        at = np.searchsorted(self.start, tokens, side="right") - 1
        return self._before[at] + tokens - self.start[at]

    def covers(self, tokens: Ints) -> np.ndarray:
        """Which tokens are in the set."""
        if not len(self.start):
            return np.zeros(len(tokens), bool)
        at = np.searchsorted(self.start, tokens, side="right") - 1
        return (at >= 0) & (tokens < self.stop[at])

    def __or__(self, other: TokenSet) -> TokenSet:
        start = np.concatenate([self.start, other.start])
        return TokenSet.of(start, np.concatenate([self.stop, other.stop]))

    def __and__(self, other: TokenSet) -> TokenSet:
        return _overlap(self, other)

    def __sub__(self, other: TokenSet) -> TokenSet:
        outside = TokenSet(
            np.concatenate([[-(1 << 62)], other.stop]), np.concatenate([other.start, [1 << 62]])
        )
        return _overlap(self, outside)


def _overlap(a: TokenSet, b: TokenSet) -> TokenSet:
    low, high, cover = coverage([a, b])
    return TokenSet.of(low[cover == 2], high[cover == 2])


def coverage(sets: list[TokenSet]) -> tuple[Ints, Ints, Ints]:
    """Intervals between all ends, and how many of the sets have each."""
    start = np.concatenate([one.start for one in sets] or [np.zeros(0, np.int64)])
    stop = np.concatenate([one.stop for one in sets] or [np.zeros(0, np.int64)])
    ends, at = np.unique(np.concatenate([start, stop]), return_inverse=True)
    change = np.bincount(at[: len(start)], minlength=len(ends))
    change = change - np.bincount(at[len(start) :], minlength=len(ends))
    return ends[:-1], ends[1:], np.cumsum(change)[:-1]


def count_inside(start: Ints, stop: Ints, tokens: TokenSet) -> Ints:
    """How many tokens of a set each interval has."""
    before = np.append(0, np.cumsum(tokens.stop - tokens.start))

    def below(x: Ints) -> Ints:
        at = np.searchsorted(tokens.start, x, side="right") - 1
        inside = np.minimum(x, tokens.stop[at]) - tokens.start[at]
        return np.where(at < 0, 0, before[at] + inside)

    return below(stop) - below(start) if len(tokens.start) else np.zeros(len(start), np.int64)


EMPTY = TokenSet(np.zeros(0, np.int64), np.zeros(0, np.int64))
