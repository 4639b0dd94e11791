"""Attention along edges on a GPU: one program per piece of a row and some heads.

Heads that lie side by side in a row go together, so that a row is read in one go: the more so the
fewer features each has. How heads and edges are shared out was measured on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.kernels.edges.attention import EdgeGrads, Inputs, additive
from edgewise.kernels.edges.index import SplitCSR
from edgewise.kernels.edges.triton_segments import segment_sums, work

WIDEST = 256
WIDE = 128  # features of all heads that one program takes, if each has fewer
FEWEST, MOST = 128, 16  # numbers, and edges, that it reads at a time
NUMBERS = ("edge_bias", "edge_scale")  # of edges and heads
AT_ONCE = 16  # rows of which a program reads everything


class ScoreCode(NamedTuple):
    """What is made of dot products, as functions of Triton; tables are packed in one tensor.

    `unit` of a gradient of tables are 1, where these are wanted: they are summed as integers.
    """

    value: Any = None
    slope: Any = None
    spread: Any = None
    tables: Tensor | None = None
    sizes: Tensor | None = None
    unit: Tensor | None = None


NO_CODE = ScoreCode()
# What stays the same between calls of a kernel: its arguments after tensors, the grid, options.
Arguments = tuple[tuple[Any, ...], tuple[int], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class EdgeCall:
    """One call: tensors with heads in one axis and features next to each other, a power of two of
    them; q stands for what is absent."""

    inputs: Inputs
    score: ScoreCode
    q: Tensor
    k: Tensor
    v: Tensor
    vector: Tensor

    @classmethod
    def of(cls, inputs: Inputs, score: ScoreCode) -> EdgeCall:
        q, v = inputs.q.flatten(0, 1), padded(inputs.v)
        if inputs.kind == 1:
            q, k = (_by_node(x[..., 0])[..., None] for x in (q, inputs.k))
        else:
            q, k = padded(q), padded(inputs.k)
        vector = q if inputs.vector is None else padded(inputs.vector).contiguous()
        return cls(inputs, score, q, k, v, vector)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        terms = self.inputs.terms
        vectors = [terms.get(name) for name in ("edge_key", "edge_value")]
        listed = [terms.get(name) for name in NUMBERS]
        listed += [None if x is None else padded(x) for x in vectors]
        listed += [self.score.tables, self.score.sizes]
        read = (self.q if x is None else x.contiguous() for x in listed)
        return self.q, self.k, self.v, self.vector, *read

    @property
    def numbers(self) -> tuple[float, float]:
        return self.inputs.scale, self.inputs.slope or 0.0

    @property
    def drop(self) -> tuple[int, int, float]:
        drop = self.inputs.drop
        return (0, 0, 1.0) if drop is None else (drop.seed, drop.least, 1 / (1 - drop.chance))

    def parts(self, heads: int, csr: SplitCSR, width: int) -> Tensor:
        """Memory for partial results."""
        return self.v.new_empty(heads * csr.slots, width, dtype=torch.float32)

    def forward_arguments(self, out: Tensor) -> Arguments:
        csr, heads = self.inputs.index.rows, len(self.q)
        counts = (csr.segments, csr.edges, heads, self.inputs.q.shape[1], csr.slots)
        numbers = (*self.numbers, *counts, *self.drop)
        strides = (*units(out), *_strides(self.q, self.k, self.v))
        meta = self.meta(heads, csr, backward=False)
        return (*work(csr), *numbers, *strides), (_pieces(csr) * heads // meta["H"],), meta

    def rows_arguments(self, dq: Tensor, g: Tensor, out: Tensor) -> Arguments:
        inputs, csr, heads = self.inputs, self.inputs.index.rows, len(self.q)
        counts = (csr.segments, csr.edges, heads, inputs.q.shape[1], csr.slots, _pieces(csr))
        strides = (*units(dq), *_strides(self.q, self.k, self.v, g, out))
        fixed, meta = (*work(csr), *self.numbers, *counts, *self.drop), self.meta(heads, csr)
        return (*fixed, *strides), (_pieces(csr) * heads // meta["H"],), meta

    def columns_arguments(self, dk: Tensor, dv: Tensor, g: Tensor) -> Arguments:
        inputs, csr, keys = self.inputs, self.inputs.index.columns, len(self.k)
        counts, meta = (csr.edges, keys, inputs.q.shape[1], csr.slots), self.meta(keys, csr)
        lists = (*work(csr), inputs.index.rows.perm)
        strides = (*units(dk), *units(dv), *_strides(self.q, self.k, self.v, g))
        fixed = (*lists, *self.numbers, *counts, *self.drop, *strides)
        return fixed, (_pieces(csr) * keys // meta["H"],), meta

    def meta(self, heads: int, csr: SplitCSR, backward: bool = True) -> dict[str, Any]:
        terms, score, d = self.inputs.terms, self.score, max(self.q.shape[-1], 16)
        width = max(d, self.v.shape[-1])
        part = share(heads, width, self.v.dtype.itemsize, backward=backward)
        return {
            "KIND": self.inputs.kind,
            "SPLIT": csr.is_split,
            "VALUE": score.value,
            "SLOPE": score.slope,
            "SPREAD": score.spread,
            "SCORE": score.value is not None,
            "BIAS": "edge_bias" in terms,
            "FACTOR": "edge_scale" in terms,
            "DROP": self.inputs.drop is not None,
            "EDGE_KEY": "edge_key" in terms,
            "EDGE_VALUE": "edge_value" in terms,
            "E": part.edges,
            "H": part.heads,
            "D": d,
            "DV": self.v.shape[-1],
            "num_warps": 1,
        }


def forward(inputs: Inputs, score: ScoreCode = NO_CODE) -> tuple[Tensor, Tensor]:
    out, lse, _, _ = _forward(inputs, score)
    shape, dv = inputs.heads, inputs.v.shape[-1]
    return out[..., :dv].unflatten(0, shape), lse.unflatten(0, shape)


def _forward(inputs: Inputs, score: ScoreCode) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output, padded, the log-sum-exp, and of additive numbers `plus` and `share`."""
    from edgewise.kernels.edges import triton_attention_kernels

    call, csr = EdgeCall.of(inputs, score), inputs.index.rows
    heads, width = len(call.q), call.v.shape[-1]
    out = empty_rows(call.v if inputs.kind else call.q, csr.segments, width)
    lse = call.v.new_empty(heads, csr.segments, dtype=torch.float32)
    plus, above = out.new_empty(0, 0, 0), lse.new_empty(0, 0)
    if inputs.kind == 1:
        plus, above = torch.empty_like(out), torch.empty_like(lse)
    results = (out, lse, plus, above)
    partial = [call.parts(heads, csr, columns) for columns in (width, 1, width, 1)]
    fixed, grid, meta = call.forward_arguments(out)
    if grid[0]:
        triton_attention_kernels.forward[grid](*call.tensors, *results, *partial, *fixed, **meta)
    if csr.is_split:
        _merge(results, partial, csr)
    return results


def _merge(results: tuple[Tensor, ...], partial: list[Tensor], csr: SplitCSR) -> None:
    """The parts of split rows, weighted by their shares of the sum of exponentials."""
    from edgewise.kernels.attention.triton import parts_kernels as triton_parts_kernels

    out, lse, plus, above = results
    triton_parts_kernels.merge[len(csr.split), len(out)](
        out, lse, partial[0], partial[1], csr.split, csr.split_ptr, csr.segments, csr.slots,
        *merged(out), BLOCK=1, DV=out.shape[2], WV=out.shape[2], num_warps=1
    )  # fmt: skip
    if not above.numel():
        return
    heads, slots = len(out), csr.slots
    of = torch.repeat_interleave(csr.split, csr.split_ptr.diff(), output_size=slots)
    weight = torch.exp(partial[1].view(heads, slots) - lse[:, of])
    for total, part in ((plus, partial[2]), (above[..., None], partial[3])):
        weighed = part.view(heads, slots, -1) * weight[..., None]
        rows = weighed.transpose(0, 1).reshape(slots, -1)
        added = segment_sums(rows, None, csr.parts).view(len(csr.split), heads, -1)
        total[:, csr.split] = added.transpose(0, 1).to(total.dtype)


def backward(
    inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor, score: ScoreCode = NO_CODE
) -> tuple[EdgeGrads, Tensor | None]:
    """The gradients, and those of packed tables."""
    call = EdgeCall.of(inputs, score)
    g, found = (padded(x.flatten(0, 1)) for x in (dout, out))
    stats = call.v.new_empty(g.shape[1], len(g), 2, dtype=torch.float32)
    state = (g, found, lse.flatten(0, 1).contiguous(), stats)
    dq, dvector, terms, tables = _rows(call, state)
    dk, dv, of_columns = _columns(call, g, stats)
    d, width, kind = inputs.q.shape[-1], inputs.v.shape[-1], inputs.v.dtype
    dq = dq[..., :d].unflatten(0, inputs.heads)
    if dvector is not None:
        dvector = dvector.sum(1, keepdim=True)[..., :d].to(kind)
    grads = EdgeGrads(dq, dk[..., :d], dv[..., :width], dvector, {**terms, **of_columns})
    return grads, tables


def _rows(
    call: EdgeCall, state: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor | None, dict[str, Tensor], Tensor | None]:
    """dq, and the gradients of the vector, of what edges multiply and add, and of tables."""
    from edgewise.kernels.edges import triton_attention_kernels

    inputs, csr, heads, d = call.inputs, call.inputs.index.rows, len(call.q), call.q.shape[-1]
    dq = empty_rows(call.q, csr.segments, d)
    listed = {name: inputs.terms[name] for name in NUMBERS if name in inputs.terms}
    terms = {name: x.new_empty(x.shape) for name, x in listed.items()}
    unit, tables, part = call.score.unit, call.score.tables, call.parts(heads, csr, d)
    shape = (0,) if tables is None else tables.shape
    dtables = torch.zeros(shape, dtype=torch.int64, device=dq.device)
    dvector = (
        None if inputs.kind != 2 else dq.new_empty(heads, _pieces(csr), d, dtype=torch.float32)
    )
    each = (dq if x is None else x for x in (dvector, *(terms.get(name) for name in NUMBERS)))
    into = (dq, *each, dtables, part if unit is None else unit, part)
    fixed, grid, meta = call.rows_arguments(dq, *state[:2])
    if grid[0]:
        triton_attention_kernels.backward_rows[grid](*call.tensors, *state, *into, *fixed, **meta)
    if csr.is_split:
        _add_up(dq, part, csr)
    return dq, dvector, terms, None if unit is None else dtables / unit


def _columns(call: EdgeCall, g: Tensor, stats: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """dk and dv, and the gradients of keys and values of edges."""
    from edgewise.kernels.edges import triton_attention_kernels

    inputs, csr, keys = call.inputs, call.inputs.index.columns, len(call.k)
    dk, dv = (empty_rows(x, csr.segments, x.shape[-1]) for x in (call.k, call.v))
    widths = {"edge_key": call.k.shape[-1], "edge_value": call.v.shape[-1]}
    each = {
        name: call.q.new_empty(keys, csr.edges, width, dtype=torch.float32)
        for name, width in widths.items()
        if name in inputs.terms
    }
    parts = [call.parts(keys, csr, x.shape[-1]) for x in (dk, dv)]
    into = (dk, dv, *(each.get(name, dk) for name in widths), *parts)
    fixed, grid, meta = call.columns_arguments(dk, dv, g)
    if grid[0]:
        columns = triton_attention_kernels.backward_columns
        columns[grid](*call.tensors, g, stats, *into, *fixed, **meta)
    if csr.is_split:
        for grad, part in ((dk, parts[0]), (dv, parts[1])):
            _add_up(grad, part, csr)
    listed = {name: inputs.terms[name] for name in each}
    terms = {name: each[name][..., : x.shape[-1]].to(x.dtype) for name, x in listed.items()}
    return dk, dv, terms


def additive_attention(*arguments: Any) -> tuple[Tensor, ...]:
    """The gradient of additive queries that are numbers needs no second pass over the edges.

    With z = q_i + k_j, f'(z) = slope + (1 - slope)·[z > 0], ds_e = p_e (g_i·v_j - g_i·out_i) and
    Σ ds_e = 0,

        dq_i = Σ_e f'(z_e) ds_e = (1 - slope) g_i·(plus_i - share_i out_i),
        plus_i = Σ_{z_e > 0} p_e v_j,  share_i = Σ_{z_e > 0} p_e,

    so the forward pass keeps `plus` and `share`.
    """
    inputs = additive(*arguments)
    out, lse, plus, above = _forward(inputs, NO_CODE)
    width = inputs.v.shape[-1]
    return out[..., :width], lse, plus[..., :width], above


def additive_attention_backward(
    dout: Tensor, out: Tensor, lse: Tensor, plus: Tensor, above: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    from edgewise.kernels.edges import triton_attention_kernels

    inputs = additive(*arguments)
    if inputs.vector is not None:
        found, _ = backward(inputs, out[:, None], lse[:, None], dout[:, None])
        assert found.vector is not None
        return found.q[:, 0], found.k, found.v, found.vector
    call = EdgeCall.of(inputs, NO_CODE)
    g, out, plus = (padded(x) for x in (dout, out, plus))
    (heads, n, width), dq = g.shape, empty_rows(inputs.q[:, 0], inputs.q.shape[2], 1)
    stats = lse.new_empty(n, heads, 2)
    part = share(heads, width, g.dtype.itemsize, backward=False)
    grid = (-(-n // AT_ONCE) * heads // part.heads,)
    if grid[0]:
        triton_attention_kernels.backward_numbers[grid](
            g, out, plus, lse, above, stats, dq, inputs.slope, n, heads,
            *_strides(g, out, plus, dq), R=AT_ONCE, H=part.heads, DV=width, num_warps=4
        )  # fmt: skip
    dk, dv, _ = _columns(call, g, stats)
    return dq, dk, dv[..., : inputs.v.shape[-1]], inputs.v.new_empty(0)


def _add_up(out: Tensor, part: Tensor, csr: SplitCSR) -> None:
    from edgewise.kernels.attention.triton import parts_kernels as triton_parts_kernels

    triton_parts_kernels.add_up[len(csr.split), len(out)](
        out, part, csr.split, csr.split_ptr, csr.segments, csr.slots,
        *merged(out), BLOCK=1, D=out.shape[-1], WD=out.shape[-1], num_warps=1
    )  # fmt: skip


class Share(NamedTuple):
    """The heads of one program, and the edges that it takes at a time."""

    heads: int
    edges: int


def share(heads: int, features: int, itemsize: int, *, backward: bool) -> Share:
    """Of this many heads of this many features, which are a power of two.

    >>> share(4, 16, 4, backward=False)
    Share(heads=4, edges=4)
    """
    together = gcd(heads, max(WIDE // features, 1))
    numbers = FEWEST * (4 if together == 1 else 1 if backward and itemsize > 2 else 2)
    return Share(together, min(max(numbers // (together * features), 1), MOST))


def empty_rows(like: Tensor, rows: int, features: int) -> Tensor:
    """Empty (heads, rows, features), rows or heads first in memory as in `like`."""
    heads = len(like)
    if heads > 1 and like.stride(0) < like.stride(1):
        return like.new_empty(rows, heads, features).transpose(0, 1)
    return like.new_empty(heads, rows, features)


def units(x: Tensor) -> tuple[int, int]:
    """How many times its features the heads, and the rows, of such rows are apart."""
    return x.stride(0) // x.shape[2], x.stride(1) // x.shape[2]


def merged(x: Tensor) -> tuple[int, int, int, int]:
    """The same as kernels take it that put parts together: every head is one of a batch."""
    head, row = units(x)
    return (1, head, 0, row)


def padded(x: Tensor) -> Tensor:
    """With features next to each other, their number a power of two of at least 16."""
    width = max(16, 1 << (x.shape[-1] - 1).bit_length())
    if width != x.shape[-1]:
        return pad(x, (0, width - x.shape[-1]))
    return x if x.stride(-1) == 1 else x.contiguous()


def _by_node(x: Tensor) -> Tensor:
    """(heads, n) with the heads of a node next to each other, as they are read together."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def _pieces(csr: SplitCSR) -> int:
    return csr.pieces.shape[0] - 1


def _strides(*tensors: Tensor) -> list[int]:
    return [s for x in tensors for s in x.stride()[:2]]


OPERATIONS: dict[str, Callable[..., Any]] = {
    "additive_attention": additive_attention,
    "additive_attention_backward": additive_attention_backward,
}
