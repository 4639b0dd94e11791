"""Trees, documents, prefixes: graphs that are a few rectangles and triangles of the matrix.

Each is one call of PyTorch's fused attention, like ones together; a row that lies in several is
merged by log-sum-exp.
"""

import torch
from torch import Tensor

from edgewise.kernels.attention import explicit, rectangles_explicit
from edgewise.kernels.attention.contract import PAIR_TERMS, Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.flash import flash, flash_backward
from edgewise.kernels.attention.merge import Merged
from edgewise.kernels.attention.shapes import MOST, Rectangle, rectangles

name = "rectangles"
START = {"cpu": 2e4, "cuda": 5e7}  # the cost of one call in pairs


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    halves = (torch.float16, torch.bfloat16)
    if case.device == "cuda" and case.dtype not in halves and not case.written_out:
        return "on a GPU it computes in float16 and bfloat16 only"
    found = rectangles(case.graph, case.n, case.m)
    if found is None:
        return f"the graph is not made of at most {MOST} rectangles and triangles"
    return case.lacks(*PAIR_TERMS)


def least(case: Case) -> float:
    """What it costs at least on a GPU, where every call takes long."""
    return 0.0 if case.device == "cpu" else START[case.device] + case.work


def cost(case: Case) -> float:
    found = rectangles(case.graph, case.n, case.m) or ()
    rows = sum(r.times * r.height for r in found)
    slow = explicit.PAIR[case.device] if case.written_out else 1.05
    work = case.b * case.g * (slow * sum(r.area for r in found) + 64 * rows)
    return work + START[case.device] * len(found)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    found = rectangles(case.graph, case.n, case.m) or ()
    if case.written_out:
        return rectangles_explicit.forward(case, found, (q, k, v), terms)
    merged = Merged((case.b, case.g, case.n), case.dv, q)
    for r in found:
        keys, values = _keys(k, r, case.g), _keys(v, r, case.g)
        out, lse = flash(_queries(q, r), keys, values, case.scale, causal=r.causal, mask=None)
        merged.add(_returned(out, case, r), _returned(lse[..., None], case, r)[..., 0], r.rows)
    return merged.out.to(q.dtype), merged.lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    found = rectangles(case.graph, case.n, case.m) or ()
    if case.written_out:
        return rectangles_explicit.backward(case, found, saved, dout)
    kind = wide(saved.q.dtype)
    dq = torch.zeros(saved.q.shape, dtype=kind, device=dout.device)
    dk, dv = (torch.zeros(x.shape, dtype=kind, device=x.device) for x in (saved.k, saved.v))
    for r in found:
        q, out, lse, g = (_queries(x, r) for x in (saved.q, saved.out, saved.lse[..., None], dout))
        k, v = (_keys(x, r, case.g) for x in (saved.k, saved.v))
        state = (q, k, v, out, lse[..., 0])
        parts = flash_backward(g, state, case.scale, causal=r.causal, mask=None)
        dq[:, :, r.rows] += _returned(parts[0], case, r)
        for total, part in ((dk, parts[1]), (dv, parts[2])):
            part = part.sum(1, keepdim=True) if case.g > 1 else part
            r.places(total).add_(part.reshape(case.b, r.times, r.width, -1))
    dq, dk, dv = (x.to(saved.q.dtype) for x in (dq, dk, dv))
    return Grads(dq, dk, dv)


def _queries(x: Tensor, r: Rectangle) -> Tensor:
    """(batch, heads, height, d): where there are several, they are heads if no keys are shared."""
    rows = x[:, :, r.rows]
    if r.times == 1:
        return rows
    rows = rows.unflatten(2, (r.times, r.height))
    return rows[:, 0] if x.shape[1] == 1 else rows.transpose(1, 2).flatten(0, 1)


def _keys(x: Tensor, r: Rectangle, g: int) -> Tensor:
    places = r.places(x)
    if r.times == 1:
        return places.expand(-1, g, -1, -1)
    return places if g == 1 else places.flatten(0, 1)[:, None].expand(-1, g, -1, -1)


def _returned(x: Tensor, case: Case, r: Rectangle) -> Tensor:
    """Back to (b, g, rows, d)."""
    if r.times == 1:
        return x
    if case.g == 1:
        return x.flatten(1, 2)[:, None]
    return x.unflatten(0, (case.b, r.times)).transpose(1, 2).flatten(2, 3)
