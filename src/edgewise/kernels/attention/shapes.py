"""Graphs cut into rectangles and triangles of the matrix."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from torch import Tensor

from edgewise.graphs.pattern import Pattern
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


@lru_cache(maxsize=64)
def rectangles(graph: Pattern, n: int, m: int) -> tuple[Rectangle, ...] | None:
    """The graph as rectangles and triangles; None if it has other pieces, or too many."""
    rows = graph.rows(n, m)
    p = rows.pieces()
    if len(p) > 64 * MOST or (p.step > 1).any():
        return None
    if not ((p.dstart == 0) | (p.bottom - p.top == 1)).all():
        return None
    grows = (p.dstop == 1) & (p.bottom - p.top > 1)
    corner = np.where(grows, p.stop - 1, p.stop)
    out = _stacked(p.top, p.bottom, p.start, corner)
    for top, bottom, left in zip(p.top[grows], p.bottom[grows], corner[grows], strict=True):
        height = int(bottom - top)
        out.append(Rectangle(int(top), int(bottom), int(left), int(left) + height, True))
    out = _in_runs(out)
    return tuple(out) if len(out) <= MOST else None


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


def _stacked(top: Ints, bottom: Ints, left: Ints, right: Ints) -> list[Rectangle]:
    """Rectangles over the same keys in neighbouring rows become one."""
    some = left < right
    order = np.lexsort((top[some], right[some], left[some]))
    out: list[Rectangle] = []
    for t, b, x, y in zip(
        *(a[some][order].tolist() for a in (top, bottom, left, right)), strict=True
    ):
        if out and (out[-1].left, out[-1].right, out[-1].bottom) == (x, y, t):
            out[-1] = Rectangle(out[-1].top, b, x, y, False)
        else:
            out.append(Rectangle(t, b, x, y, False))
    return out
