"""Scored attention on a GPU: one program per piece of a row and head, hubs cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.kernels.aggregate import triton_rows
from edgewise.kernels.aggregate.index import Gather, Half
from edgewise.kernels.availability import no_triton
from edgewise.kernels.scored.contract import KINDS, Found, Grads, Inputs, for_query

name = "triton_scored"
EDGES, WARPS = 16, 1  # edges that one program takes at a time, and its warps
WIDEST = 256


def refuses(dtype: torch.dtype, device: str, widest: int) -> str | None:
    if reason := no_triton(device):
        return reason
    if dtype == torch.float64:
        return "it does not compute in float64"
    return f"{widest} features are more than {WIDEST}" if widest > WIDEST else None


def forward(given: Inputs, which: Gather) -> Found:
    from edgewise.kernels.scored import triton_scored_kernels

    q, k, v, t, keep = _ready(given)
    half, heads, width = which.forth, len(v), v.shape[-1]
    out = v.new_empty(heads, half.segments, width)
    lse = v.new_empty(heads, half.segments, dtype=torch.float32)
    plus, share = out.new_empty(0, 0, 0), lse.new_empty(0, 0)
    if given.kind == "additive":
        plus, share = torch.empty_like(out), torch.empty_like(lse)
    results = (out, lse, plus, share)
    partial = [_parts(v, half, columns) for columns in (width, 1, width, 1)]
    numbers = (given.slope, half.segments, half.entries, heads, half.slots)
    grid = (_pieces(half) * heads,)
    if grid[0]:
        triton_scored_kernels.forward[grid](
            q, k, v, t, keep, *results, *partial, *_work(half),
            *numbers, *_strides(q, k, v), DV=width, **_meta(given, q, half)
        )  # fmt: skip
    if half.cut:
        _merge(results, partial, half)
    kept = given.v.shape[2]
    return Found(out[..., :kept].contiguous(), lse, plus[..., :kept].contiguous(), share)


def _merge(results: tuple[Tensor, ...], partial: list[Tensor], half: Half) -> None:
    """The parts of rows that are cut, weighted by their shares of the sum of exponentials."""
    from edgewise.kernels.attention import triton_parts_kernels

    out, lse, plus, share = results
    triton_parts_kernels.merge[len(half.split), len(out)](
        out, lse, partial[0], partial[1], half.split, half.split_ptr, half.segments, half.slots,
        1, half.segments, 0, 1, BLOCK=1, DV=out.shape[2], num_warps=1
    )  # fmt: skip
    if not share.numel():
        return
    heads, slots = len(out), half.slots
    of = torch.repeat_interleave(half.split, half.split_ptr.diff(), output_size=slots)
    weight = torch.exp(partial[1].view(heads, slots) - lse[:, of])
    for whole, part in ((plus, partial[2]), (share[..., None], partial[3])):
        weighed = part.view(heads, slots, -1) * weight[..., None]
        rows = weighed.transpose(0, 1).reshape(slots, -1)
        added = triton_rows.total(rows, None, half.parts).view(len(half.split), heads, -1)
        whole[:, half.split] = added.transpose(0, 1).to(whole.dtype)


def backward(given: Inputs, found: Found, dout: Tensor, which: Gather) -> Grads:
    q, k, v, t, keep = _ready(given)
    g = _padded(dout)
    delta = _by_node((dout.float() * found.out.float()).sum(-1))
    lse = _by_node(torch.where(found.lse == -torch.inf, torch.inf, found.lse))
    additive = given.kind == "additive"
    ds = v.new_empty(0 if additive else len(v), which.forth.entries, dtype=torch.float32)
    inputs = (q, k, v, t, keep, g, lse, delta)
    dk, dv = _columns(given, inputs, ds, which)
    d, width = given.q.shape[2], given.v.shape[2]
    dk, dv = dk[..., :d], dv[..., :width].contiguous()
    if additive:
        return Grads(for_query(given.slope, found, dout).to(dk.dtype), dk, dv, None)
    dq, dt = _rows(given, (q, k, t), ds, which)
    return Grads(dq[..., :d], dk, dv, dt)


def _by_node(x: Tensor) -> Tensor:
    """(heads, n) with the heads of a node next to each other, as they are read together."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def _columns(
    given: Inputs, inputs: tuple[Tensor, ...], ds: Tensor, which: Gather
) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.scored import triton_scored_kernels

    q, k, v, g, lse = *inputs[:3], *inputs[5:7]
    half, heads = which.back, len(v)
    dk, dv = _like(k, half.segments), _like(v, half.segments)
    parts = [_parts(x, half, x.shape[-1]) for x in (k, v)]
    numbers = (given.slope, half.segments, half.entries, heads, half.slots)
    grid = (_pieces(half) * heads,)
    if grid[0]:
        triton_scored_kernels.backward_columns[grid](
            *inputs, dk, dv, ds, *parts, *_work(half), which.forth.turn,
            *numbers, *_strides(q, k, v, g, lse), DV=v.shape[-1], KEEP=given.keep is not None,
            **{name: x for name, x in _meta(given, q, half).items() if name != "KEEP"}
        )  # fmt: skip
    if given.kind == "given":
        dk.zero_()
    elif half.cut:
        _add_up(dk, parts[0], half)
    if half.cut:
        _add_up(dv, parts[1], half)
    return dk, dv


def _rows(
    given: Inputs, inputs: tuple[Tensor, ...], ds: Tensor, which: Gather
) -> tuple[Tensor, Tensor | None]:
    from edgewise.kernels.scored import triton_scored_kernels

    q, k, t = inputs
    half, heads, d = which.forth, len(ds), q.shape[-1]
    dq = _like(q, half.segments)
    if given.kind == "given":
        return dq.zero_(), ds[..., None].to(given.v.dtype)
    of_sums = given.kind == "of sums"
    dt = ds.new_empty(heads, _pieces(half), d) if of_sums else torch.empty_like(t)
    part = _parts(q, half, d)
    numbers = (given.slope, half.segments, half.entries, heads, half.slots, _pieces(half))
    grid = (_pieces(half) * heads,)
    if grid[0]:
        meta = {n: x for n, x in _meta(given, q, half).items() if n != "KEEP"}
        triton_scored_kernels.backward_rows[grid](
            q, k, t, ds, dq, dt, part, *_work(half), *numbers, *_strides(q, k), **meta
        )
    if half.cut:
        _add_up(dq, part, half)
    if given.t is None:
        return dq, None
    width = given.t.shape[2]
    found = dt.sum(1, keepdim=True) if of_sums else dt
    return dq, found[..., :width].to(given.v.dtype).contiguous()


def _add_up(out: Tensor, part: Tensor, half: Half) -> None:
    from edgewise.kernels.attention import triton_parts_kernels

    triton_parts_kernels.add_up[len(half.split), len(out)](
        out, part, half.split, half.split_ptr, half.segments, half.slots,
        1, half.segments, 0, 1, BLOCK=1, D=out.shape[-1], num_warps=1
    )  # fmt: skip


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


def _padded(x: Tensor) -> Tensor:
    width = max(16, 1 << (x.shape[-1] - 1).bit_length())
    if width != x.shape[-1]:
        return pad(x, (0, width - x.shape[-1]))
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(x: Tensor, rows: int) -> Tensor:
    return x.new_empty(x.shape[0], rows, x.shape[2])


def _parts(x: Tensor, half: Half, width: int) -> Tensor:
    return x.new_empty(len(x) * half.slots, width, dtype=torch.float32)


def _pieces(half: Half) -> int:
    return half.pieces.shape[0] - 1


def _work(half: Half) -> tuple[Tensor, ...]:
    return half.pieces, half.rows, half.owner, half.slot


def _strides(*tensors: Tensor) -> list[int]:
    return [s for x in tensors for s in x.stride()[:2]]


def _meta(given: Inputs, q: Tensor, half: Half) -> dict[str, Any]:
    return {
        "KIND": KINDS.index(given.kind),
        "KEEP": given.keep is not None,
        "CUT": half.cut,
        "E": EDGES,
        "D": max(q.shape[-1], 16) if given.kind in ("of sums", "multiplicative") else 16,
        "num_warps": WARPS,
    }
