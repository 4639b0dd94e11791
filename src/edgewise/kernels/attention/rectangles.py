"""Trees, documents, prefixes: graphs that are a few rectangles and triangles of the matrix.

Each is one call of PyTorch's fused attention, like ones together; a row that lies in several is
merged by log-sum-exp.
"""

from dataclasses import dataclass
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
    """Queries top ≤ i < bottom, keys left ≤ j < right; if causal, only j - left ≤ i - top."""

    top: int
    bottom: int
    left: int
    right: int
    causal: bool

    @property
    def area(self) -> int:
        height, width = self.bottom - self.top, self.right - self.left
        return height * (height + 1) // 2 if self.causal else height * width


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
    work = case.b * case.g * sum(1.05 * r.area + 64 * (r.bottom - r.top) for r in found)
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
    return tuple(out) if len(out) <= MOST else None


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
        rows, keys = slice(r.top, r.bottom), slice(r.left, r.right)
        out, lse = flash(
            q[:, :, rows], *_keys(case, k, v, keys), case.scale, causal=r.causal, mask=None
        )
        merged.add(out, lse, rows)
    return merged.out.to(q.dtype), merged.lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    kind = wide(saved.q.dtype)
    dq, dk, dv = (
        torch.zeros(x.shape, dtype=kind, device=x.device) for x in (saved.q, saved.k, saved.v)
    )
    for r in rectangles(case.graph, case.n, case.m) or ():
        rows, keys = slice(r.top, r.bottom), slice(r.left, r.right)
        out, lse = saved.out[:, :, rows], saved.lse[:, :, rows]
        state = (saved.q[:, :, rows], *_keys(case, saved.k, saved.v, keys), out, lse)
        parts = flash_backward(dout[:, :, rows], state, case.scale, causal=r.causal, mask=None)
        dq[:, :, rows] += parts[0]
        dk[:, keys] += parts[1].sum(1)
        dv[:, keys] += parts[2].sum(1)
    return Grads(*(x.to(saved.q.dtype) for x in (dq, dk, dv)))


def _keys(case: Case, k: Tensor, v: Tensor, keys: slice) -> tuple[Tensor, Tensor]:
    k, v = (x[:, None, keys].expand(-1, case.g, -1, -1) for x in (k, v))
    return k, v
