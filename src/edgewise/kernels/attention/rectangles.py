"""Trees, documents, prefixes: graphs that are a few rectangles and triangles of the matrix.

Each is one call of PyTorch's fused attention, like ones together; a row that lies in several is
merged by log-sum-exp.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.flash import flash, flash_backward
from edgewise.kernels.attention.merge import Merged
from edgewise.layouts.ragged import Ints

name = "rectangles"
MOST = 128
START = {"cpu": 2e4, "cuda": 5e7}  # the cost of one call in pairs


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


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    if case.device == "cuda" and case.dtype not in (torch.float16, torch.bfloat16):
        return "on a GPU it computes in float16 and bfloat16 only"
    found = rectangles(case.graph, case.n, case.m)
    if found is None:
        return f"the graph is not made of at most {MOST} rectangles and triangles"
    return case.lacks()


def cost(case: Case) -> float:
    found = rectangles(case.graph, case.n, case.m) or ()
    rows = sum(r.times * r.height for r in found)
    work = case.b * case.g * (1.05 * sum(r.area for r in found) + 64 * rows)
    return work + START[case.device] * len(found)


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


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    merged = Merged((case.b, case.g, case.n), case.dv, q)
    for r in rectangles(case.graph, case.n, case.m) or ():
        keys, values = _keys(k, r, case.g), _keys(v, r, case.g)
        out, lse = flash(_queries(q, r), keys, values, case.scale, causal=r.causal, mask=None)
        merged.add(_returned(out, case, r), _returned(lse[..., None], case, r)[..., 0], r.rows)
    return merged.out.to(q.dtype), merged.lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    kind = wide(saved.q.dtype)
    dq = torch.zeros(saved.q.shape, dtype=kind, device=dout.device)
    dk, dv = (torch.zeros(x.shape, dtype=kind, device=x.device) for x in (saved.k, saved.v))
    for r in rectangles(case.graph, case.n, case.m) or ():
        q, out, lse, g = (_queries(x, r) for x in (saved.q, saved.out, saved.lse[..., None], dout))
        k, v = (_keys(x, r, case.g) for x in (saved.k, saved.v))
        state = (q, k, v, out, lse[..., 0])
        parts = flash_backward(g, state, case.scale, causal=r.causal, mask=None)
        dq[:, :, r.rows] += _returned(parts[0], case, r)
        for total, part in ((dk, parts[1]), (dv, parts[2])):
            part = part.sum(1, keepdim=True) if case.g > 1 else part
            _places(total, r).add_(part.reshape(case.b, r.times, r.width, -1))
    return Grads(*(x.to(saved.q.dtype) for x in (dq, dk, dv)))


def _queries(x: Tensor, r: Rectangle) -> Tensor:
    """(batch, heads, height, d): where there are several, they are heads if no keys are shared."""
    rows = x[:, :, r.rows]
    if r.times == 1:
        return rows
    rows = rows.unflatten(2, (r.times, r.height))
    return rows[:, 0] if x.shape[1] == 1 else rows.transpose(1, 2).flatten(0, 1)


def _keys(x: Tensor, r: Rectangle, g: int) -> Tensor:
    places = _places(x, r)
    if r.times == 1:
        return places.expand(-1, g, -1, -1)
    return places if g == 1 else places.flatten(0, 1)[:, None].expand(-1, g, -1, -1)


def _places(x: Tensor, r: Rectangle) -> Tensor:
    """(b, m, d) as (b, times, width, d): a view."""
    (b, _, d), (sb, sm, sd) = x.shape, x.stride()
    shape, strides = (b, r.times, r.width, d), (sb, sm * r.shift, sm, sd)
    return x.as_strided(shape, strides, x.storage_offset() + r.left * sm)


def _returned(x: Tensor, case: Case, r: Rectangle) -> Tensor:
    """Back to (b, g, rows, d)."""
    if r.times == 1:
        return x
    if case.g == 1:
        return x.flatten(1, 2)[:, None]
    return x.unflatten(0, (case.b, r.times)).transpose(1, 2).flatten(2, 3)
