"""Graphs cut into rectangles and triangles of the matrix."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import residue_groups
from edgewise.layouts.ragged import Ints

MOST = 128


@dataclass(frozen=True)
class Rectangle:
    """Queries top ≤ i < bottom, keys left ≤ j < right; if causal, only j - left ≤ i - top.

    There are `times` of them, each below the last and `shift` keys further to the right.
    """

    top: int
    bottom: int
    left: int
    right: int
    causal: bool
    times: int = 1
    shift: int = 0

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def area(self) -> int:
        high = self.height
        return self.times * (high * (high + 1) // 2 if self.causal else high * self.width)

    @property
    def rows(self) -> slice:
        return slice(self.top, self.top + self.times * self.height)

    def follows(self, last: "Rectangle") -> bool:
        """It is the next of those that `last` stands for, over keys of its own."""
        shift = self.left - last.left - (last.times - 1) * last.shift
        alike = (self.height, self.width, self.causal) == (last.height, last.width, last.causal)
        next_ = self.top == last.rows.stop and shift >= self.width
        return alike and next_ and (last.times == 1 or shift == last.shift)

    def places(self, x: Tensor) -> Tensor:
        """(b, m, d) as (b, times, width, d): a view."""
        (b, _, d), (sb, sm, sd) = x.shape, x.stride()
        shape, strides = (b, self.times, self.width, d), (sb, sm * self.shift, sm, sd)
        return x.as_strided(shape, strides, x.storage_offset() + self.left * sm)


@cached
def rectangles(graph: Pattern, n: int, m: int) -> tuple[Rectangle, ...] | None:
    """The graph as rectangles and triangles; None if it has other pieces, or too many."""
    if residue_groups(graph, n, m) is not None:
        return None  # it has steps
    p = graph.rows(n, m).trapezoids()
    if len(p) > 64 * MOST or (p.step > 1).any():
        return None
    if not ((p.dstart == 0) | (p.bottom - p.top == 1)).all():
        return None
    grows = (p.dstop == 1) & (p.bottom - p.top > 1)
    corner = np.where(grows, p.stop - 1, p.stop)
    below = _stacked(p.top, p.bottom, p.start, corner)
    top, bottom, left = p.top[grows], p.bottom[grows], corner[grows]
    beside = np.stack([top, bottom, left, left + bottom - top], axis=1)
    if _at_least(below) + _at_least(beside) > MOST:
        return None
    out = [Rectangle(t, b, x, y, False) for t, b, x, y in below.tolist()]
    out += [Rectangle(t, b, x, y, True) for t, b, x, y in beside.tolist()]
    out = _in_runs(out)
    return tuple(out) if len(out) <= MOST else None


def _at_least(lines: Ints) -> int:
    """How many batches there are at least: a batch is over where the next one does not follow."""
    if not len(lines):
        return 0
    top, bottom, left, right = lines[np.lexsort((lines[:, 2], lines[:, 0]))].T
    alike = (np.diff(bottom - top) == 0) & (np.diff(right - left) == 0)
    follows = (top[1:] == bottom[:-1]) & (np.diff(left) >= (right - left)[1:])
    return 1 + int((~(alike & follows)).sum())


def _in_runs(several: list[Rectangle]) -> list[Rectangle]:
    """Equal ones one below the other, over different keys, become one batch."""
    out: list[Rectangle] = []
    for r in sorted(several, key=lambda r: (r.causal, r.top, r.left)):
        if out and r.follows(out[-1]):
            last = out[-1]
            shift = (r.left - last.left) // last.times
            out[-1] = replace(last, times=last.times + 1, shift=shift)
        else:
            out.append(r)
    return out


def _stacked(top: Ints, bottom: Ints, left: Ints, right: Ints) -> Ints:
    """(top, bottom, left, right): those over the same keys in neighbouring rows become one."""
    lines = np.stack([top, bottom, left, right], axis=1)[left < right]
    lines = lines[np.lexsort((lines[:, 0], lines[:, 3], lines[:, 2]))]
    goes_on = (lines[1:, 2:] == lines[:-1, 2:]).all(1) & (lines[1:, 0] == lines[:-1, 1])
    first = np.flatnonzero(np.concatenate([[True], ~goes_on]))[: len(lines)]
    out = lines[first]
    out[:, 1] = lines[np.append(first[1:], len(lines)) - 1, 1] if len(lines) else out[:, 1]
    return out
