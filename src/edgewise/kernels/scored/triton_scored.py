"""Scored attention on a GPU: one program per piece of a row and few heads, hubs cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.kernels.availability import no_triton
from edgewise.kernels.edges import triton_segments
from edgewise.kernels.edges.index import EdgeIndex, SplitCSR
from edgewise.kernels.flat import Heads
from edgewise.kernels.programs import merged, share, units
from edgewise.kernels.scored.contract import KINDS, Found, Grads, Inputs, heads_in

name = "triton_scored"
WIDEST = 256
AT_ONCE = 16  # rows of which a program reads everything


def refuses(dtype: torch.dtype, device: str, widest: int) -> str | None:
    if reason := no_triton(device):
        return reason
    if dtype == torch.float64:
        return "it does not compute in float64"
    return f"{widest} features are more than {WIDEST}" if widest > WIDEST else None


def forward(given: Inputs, which: EdgeIndex) -> Found:
    from edgewise.kernels.scored import triton_scored_kernels

    q, k, v, t, keep = _ready(given)
    half, heads, width = which.rows, len(v), v.shape[-1]
    laid = heads_in(given.q, given.k, given.v)
    out = laid.empty(half.segments, width, v)[:, 0]
    lse = v.new_empty(heads, half.segments, dtype=torch.float32)
    plus, part_of = out.new_empty(0, 0, 0), lse.new_empty(0, 0)
    if given.kind == "additive":
        plus, part_of = torch.empty_like(out), torch.empty_like(lse)
    results = (out, lse, plus, part_of)
    partial = [_parts(v, half, columns) for columns in (width, 1, width, 1)]
    numbers = (given.slope, half.segments, half.edges, heads, half.slots, *units(out))
    meta = _meta(given, q, v, half, backward=False)
    grid = (_pieces(half) * heads // meta["H"],)
    if grid[0]:
        triton_scored_kernels.forward[grid](
            q, k, v, t, keep, *results, *partial, *_work(half),
            *numbers, *_strides(q, k, v), DV=width, KEEP=given.keep is not None, **meta
        )  # fmt: skip
    if half.is_split:
        _merge(results, partial, half)
    kept = given.v.shape[2]
    return Found(_cut(out, kept, laid), lse, _cut(plus, kept, laid), part_of)


def _merge(results: tuple[Tensor, ...], partial: list[Tensor], half: SplitCSR) -> None:
    """The parts of rows that are cut, weighted by their shares of the sum of exponentials."""
    from edgewise.kernels.attention import triton_parts_kernels

    out, lse, plus, share = results
    triton_parts_kernels.merge[len(half.split), len(out)](
        out, lse, partial[0], partial[1], half.split, half.split_ptr, half.segments, half.slots,
        *merged(out), BLOCK=1, DV=out.shape[2], num_warps=1
    )  # fmt: skip
    if not share.numel():
        return
    heads, slots = len(out), half.slots
    of = torch.repeat_interleave(half.split, half.split_ptr.diff(), output_size=slots)
    weight = torch.exp(partial[1].view(heads, slots) - lse[:, of])
    for whole, part in ((plus, partial[2]), (share[..., None], partial[3])):
        weighed = part.view(heads, slots, -1) * weight[..., None]
        rows = weighed.transpose(0, 1).reshape(slots, -1)
        added = triton_segments._sum(rows, None, half.parts).view(len(half.split), heads, -1)
        whole[:, half.split] = added.transpose(0, 1).to(whole.dtype)


def backward(given: Inputs, found: Found, dout: Tensor, which: EdgeIndex) -> Grads:
    q, k, v, t, keep = _ready(given)
    laid = heads_in(given.q, given.k, given.v)
    additive = given.kind == "additive"
    g = _padded(dout)
    dq = laid.empty(given.q.shape[1], given.q.shape[2], given.q)[:, 0]
    stats = _nodes(given, found, g, dq)
    ds = v.new_empty(0 if additive else len(v), which.rows.edges, dtype=torch.float32)
    dk, dv = _columns(given, (q, k, v, t, keep, g, stats), ds, which, laid)
    if additive:
        return Grads(dq, dk, dv, None)
    dq, dt = _rows(given, (q, k, t), ds, which, laid)
    return Grads(dq, dk, dv, dt)


def _nodes(given: Inputs, found: Found, g: Tensor, dq: Tensor) -> Tensor:
    """The log-sum-exp and dout·out of every node: (n, heads, 2); additive queries' gradients."""
    from edgewise.kernels.scored import triton_scored_kernels

    heads, n, width = g.shape
    stats = found.lse.new_empty(n, heads, 2)
    additive = given.kind == "additive"
    out = _padded(found.out)
    plus = _padded(found.plus) if additive else out
    part_of = found.share if additive else found.lse
    part = share(heads, width, g.dtype.itemsize, backward=False)
    grid = (-(-n // AT_ONCE) * heads // part.heads,)
    if grid[0]:
        triton_scored_kernels.nodes[grid](
            g, out, plus, found.lse, part_of, stats, dq, given.slope, n, heads,
            *units(out), *_strides(g, dq), ADDITIVE=additive, R=AT_ONCE, H=part.heads, DV=width,
            num_warps=4
        )  # fmt: skip
    return stats


def _columns(
    given: Inputs, inputs: tuple[Tensor, ...], ds: Tensor, which: EdgeIndex, laid: Heads
) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.scored import triton_scored_kernels

    q, k, v, g = *inputs[:3], inputs[5]
    half, heads = which.columns, len(v)
    dk, dv = (laid.empty(half.segments, x.shape[2], x)[:, 0] for x in (k, v))
    parts = [_parts(x, half, x.shape[-1]) for x in (k, v)]
    numbers = (given.slope, half.segments, half.edges, heads, half.slots)
    meta = _meta(given, q, v, half)
    grid = (_pieces(half) * heads // meta["H"],)
    if grid[0]:
        triton_scored_kernels.backward_columns[grid](
            *inputs, dk, dv, ds, *parts, *_work(half), which.rows.perm, *numbers, *units(dk),
            *units(dv), *_strides(q, k, v, g), DV=v.shape[-1], KEEP=given.keep is not None, **meta
        )  # fmt: skip
    if given.kind == "given":
        dk = laid.empty(half.segments, given.k.shape[2], given.k)[:, 0].zero_()
    elif half.is_split:
        _add_up(dk, parts[0], half)
    if half.is_split:
        _add_up(dv, parts[1], half)
    return _cut(dk, given.k.shape[2], laid), _cut(dv, given.v.shape[2], laid)


def _rows(
    given: Inputs, inputs: tuple[Tensor, ...], ds: Tensor, which: EdgeIndex, laid: Heads
) -> tuple[Tensor, Tensor | None]:
    from edgewise.kernels.scored import triton_scored_kernels

    q, k, t = inputs
    half, heads, d = which.rows, len(ds), q.shape[-1]
    if given.kind == "given":
        none = laid.empty(half.segments, given.q.shape[2], given.q)[:, 0]
        return none.zero_(), ds[..., None].to(given.v.dtype)
    dq = laid.empty(half.segments, d, q)[:, 0]
    of_sums = given.kind == "of sums"
    dt = ds.new_empty(heads, _pieces(half), d) if of_sums else torch.empty_like(t)
    part = _parts(q, half, d)
    numbers = (given.slope, half.edges, heads, half.slots, _pieces(half), *units(dq))
    meta = _meta(given, q, q, half)
    grid = (_pieces(half) * heads // meta["H"],)
    if grid[0]:
        triton_scored_kernels.backward_rows[grid](
            q, k, t, ds, dq, dt, part, *_work(half), *numbers, *_strides(q, k), **meta
        )
    if half.is_split:
        _add_up(dq, part, half)
    dq = _cut(dq, given.q.shape[2], laid)
    if given.t is None:
        return dq, None
    width = given.t.shape[2]
    found = dt.sum(1, keepdim=True) if of_sums else dt
    return dq, found[..., :width].to(given.v.dtype).contiguous()


def _add_up(out: Tensor, part: Tensor, half: SplitCSR) -> None:
    from edgewise.kernels.attention import triton_parts_kernels

    triton_parts_kernels.add_up[len(half.split), len(out)](
        out, part, half.split, half.split_ptr, half.segments, half.slots,
        *merged(out), BLOCK=1, D=out.shape[-1], num_warps=1
    )  # fmt: skip


def _cut(x: Tensor, features: int, laid: Heads) -> Tensor:
    """Without the features of the padding, in the order of the heads."""
    if x.shape[-1] == features or not x.numel():
        return x[..., :features]
    return laid.empty(x.shape[1], features, x)[:, 0].copy_(x[..., :features])


def _ready(given: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Features next to each other, as many as a power of two; v stands for what is not given."""
    v = _padded(given.v)
    if given.kind == "given":
        q = k = v[:, :, :1]
        t = v if given.t is None else given.t.contiguous()
    elif given.kind == "additive":
        q, k, t = _by_node(given.q[..., 0])[..., None], _by_node(given.k[..., 0])[..., None], v
    else:
        assert given.t is not None
        q, k, t = _padded(given.q), _padded(given.k), _padded(given.t).contiguous()
    return q, k, v, t, v if given.keep is None else given.keep.contiguous()


def _by_node(x: Tensor) -> Tensor:
    """(heads, n) with the heads of a node next to each other, as they are read together."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def _padded(x: Tensor) -> Tensor:
    width = max(16, 1 << (x.shape[-1] - 1).bit_length())
    if width != x.shape[-1]:
        return pad(x, (0, width - x.shape[-1]))
    return x if x.stride(-1) == 1 else x.contiguous()


def _parts(x: Tensor, half: SplitCSR, width: int) -> Tensor:
    return x.new_empty(len(x) * half.slots, width, dtype=torch.float32)


def _pieces(half: SplitCSR) -> int:
    return half.pieces.shape[0] - 1


def _work(half: SplitCSR) -> tuple[Tensor, ...]:
    return half.pieces, half.index, half.owner, half.slot


def _strides(*tensors: Tensor) -> list[int]:
    return [s for x in tensors for s in x.stride()[:2]]


def _meta(
    given: Inputs, q: Tensor, v: Tensor, half: SplitCSR, backward: bool = True
) -> dict[str, Any]:
    d = max(q.shape[-1], 16) if given.kind in ("of sums", "multiplicative") else 16
    part = share(len(v), max(d, v.shape[-1]), v.dtype.itemsize, backward=backward)
    kind = KINDS.index(given.kind)
    return {
        "KIND": kind,
        "CUT": half.is_split,
        "E": part.edges,
        "H": part.heads,
        "D": d,
        "num_warps": 1,
    }
