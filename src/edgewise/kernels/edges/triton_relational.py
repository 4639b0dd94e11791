"""Attention with a vector on each edge on a GPU: programs over rows, over edges and over columns.

The backward pass stores two numbers per edge and head, as on a CPU.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.attention.triton.launch import Launch, Launches
from edgewise.kernels.edges.index import EdgeIndex, SplitCSR
from edgewise.kernels.edges.relational import RelationalInputs, merged, operations, steps_of, summed
from edgewise.kernels.edges.triton_segments import work

WIDE = 128  # features of all heads that one program takes, if each has fewer
NUMBERS, MOST = 512, 16  # numbers that a warp reads of one tensor at a time, and edges at most
LONG, WARPS = 64, 4  # a mean of so many edges is worth so many warps
EDGES = 16  # of which a program computes the gradients of vectors


class _Call:
    """The arguments that kernels share; what is absent is q."""

    def __init__(self, inputs: RelationalInputs) -> None:
        self.inputs, csr = inputs, inputs.index.rows
        q = _in_rows(inputs.q)
        found = [q if t is None else _in_rows(t) for t in (inputs.k, inputs.v, inputs.a, inputs.b)]
        bias = q if inputs.bias is None else inputs.bias.contiguous()
        self.read = [q, *found[:2], inputs.x.contiguous(), *found[2:], bias]
        self.steps = tuple(s for t in (q, *found) for s in _units(t))
        self.batch, self.heads = len(q), inputs.heads
        self.counts = (inputs.q.shape[1], inputs.k.shape[1], csr.edges, self.heads)
        drop = inputs.drop
        self.drop = (0, 0, 1.0) if drop is None else (drop.seed, drop.least, 1 / (1 - drop.chance))
        width, alone = int(inputs.x.shape[-1]), inputs.x.shape[2] == 1
        self.apart = {"APART": 0 if alone else width, "STEP": int(inputs.x.shape[2]) * width}
        self.w = {"W": width, "WB": _power(width)}
        d, dv = int(inputs.q.shape[-1]), int(inputs.v.shape[-1])
        self.sizes = self.w | {"D": d, "DV": dv, "DB": _power(d), "VB": _power(dv)}
        self.meets = {"QUERIES": inputs.a is not None, "KEYS": inputs.b is not None}
        self.terms = {"BIAS": inputs.bias is not None, "DROP": drop is not None}

    def share(self, csr: SplitCSR) -> dict[str, int]:
        """The heads of a program, the edges that it takes at a time, and its warps."""
        width = max(self.sizes[name] for name in ("DB", "VB", "WB"))
        heads = gcd(self.heads, max(WIDE // width, 1))
        warps = WARPS if csr.edges >= LONG * csr.segments else 1
        edges = min(max(NUMBERS * warps // (heads * width), 2), MOST)
        return {"H": heads, "E": edges, "SPLIT": csr.is_split, "num_warps": warps}

    def groups(self, csr: SplitCSR) -> tuple[int, int]:
        """Groups of heads of the batch, and programs."""
        many = self.batch * self.heads // self.share(csr)["H"]
        return many, many * (csr.pieces.shape[0] - 1)

    def empty(self, *shape: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(self.batch, *shape, dtype=kind, device=self.inputs.q.device)

    def results(self, csr: SplitCSR, *shape: int) -> Tensor:
        """Rows for segments and for pieces of them, which are added up in float32."""
        kind = torch.float32 if csr.is_split else self.inputs.v.dtype
        return self.empty(csr.results, *shape, kind=kind)


def _in_rows(x: Tensor) -> Tensor:
    """With features next to each other, heads and rows a multiple of them apart, and batches row
    after row; where they are, if possible."""
    each = len(x) == 1 or x.stride(0) == x.shape[1] * x.stride(1)
    multiples = not any(step % max(x.shape[-1], 1) for step in steps_of(x))
    return x if each and multiples and x.stride(-1) == 1 else x.contiguous()


def _units(x: Tensor) -> tuple[int, ...]:
    """How many times its features two rows are apart, and two heads."""
    return tuple(step // max(x.shape[-1], 1) for step in steps_of(x))


def _power(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def _launch(index: EdgeIndex, name: str, grid: int, tensors: Any, fixed: Any, meta: Any) -> None:
    """A kernel, bound to what stays the same for edges; seeds of dropout do not."""
    from edgewise.kernels.edges import triton_relational_kernels

    if not grid:
        return
    numbers = tuple(x for x in fixed if not isinstance(x, Tensor))
    key = (name, grid, numbers, *meta.items(), *(x.dtype for x in tensors))
    if (found := index.prepared.get(key)) is None or meta.get("DROP"):
        launch = Launch(getattr(triton_relational_kernels, name), (grid,), meta, tuple(fixed))
        found = Launches(lambda *of: [(launch, of)])
        if not meta.get("DROP"):
            index.prepared[key] = found
    found(*tensors)


def forward(inputs: RelationalInputs) -> tuple[Tensor, Tensor]:
    call, csr = _Call(inputs), inputs.index.rows
    out = call.results(csr, call.heads * inputs.out_width)
    lse = call.empty(csr.results, call.heads)
    groups, grid = call.groups(csr)
    fixed = (*work(csr), *call.counts, csr.results, groups, *call.drop, *call.steps)
    meta = {"VALUES": inputs.values, **call.meets, **call.terms, **call.sizes, **call.apart}
    _launch(inputs.index, "forward", grid, (*call.read, out, lse), fixed, meta | call.share(csr))
    out, lse = merged(inputs, out, lse)
    return out.to(inputs.v.dtype), lse


def backward(inputs: RelationalInputs, out: Tensor, lse: Tensor, dout: Tensor) -> tuple[Any, ...]:
    call, rows, columns = _Call(inputs), inputs.index.rows, inputs.index.columns
    q, k, v, x, a, b, _ = call.read
    dq, dk, dv = (call.results(c, *t.shape[2:]) for c, t in ((rows, q), (columns, k), (columns, v)))
    da = dq if inputs.a is None else call.results(rows, *a.shape[2:])
    db = dk if inputs.b is None else call.results(columns, *b.shape[2:])
    dx, g, values = torch.empty_like(x), dout.contiguous(), {"VALUES": inputs.values}
    used, ds = (call.empty(rows.edges, call.heads) for _ in range(2))
    groups, grid = call.groups(rows)
    fixed = (*work(rows), *call.counts, rows.results, groups, *call.drop, *call.steps)
    meta = values | call.meets | call.terms | call.sizes | call.apart | call.share(rows)
    tensors = (*call.read, out.contiguous(), lse.contiguous(), g, dq, da, used, ds)
    _launch(inputs.index, "backward_rows", grid, tensors, fixed, meta)
    grid = -(-rows.edges // EDGES) * call.batch * int(inputs.x.shape[2])
    fixed = (_ids(inputs.index), rows.index, *call.counts, *call.steps[6:])
    meta = values | call.meets | call.w | call.apart | {"E": EDGES, "DV": call.sizes["DV"]}
    meta["num_warps"] = 1 if EDGES * call.w["WB"] <= NUMBERS else WARPS
    _launch(inputs.index, "backward_edges", grid, (a, b, g, used, ds, dx), fixed, meta)
    groups, grid = call.groups(columns)
    fixed = (*work(columns), rows.perm, *call.counts, columns.results, groups, *call.steps[:2])
    meta = values | {"KEYS": inputs.b is not None} | call.sizes | call.apart | call.share(columns)
    tensors = (q, x, g, used, ds, dk, db, dv)
    _launch(inputs.index, "backward_columns", grid, tensors, fixed, meta)
    kind = inputs.v.dtype
    of_query = None if inputs.a is None else summed(rows, da, kind)
    of_key = None if inputs.b is None else summed(columns, db, kind)
    dq, dk, dv = (summed(c, t, kind) for c, t in ((rows, dq), (columns, dk), (columns, dv)))
    return dq, dk, dv, dx, of_query, of_key, ds


def _ids(index: EdgeIndex) -> Tensor:
    """The query of each edge, for every step."""
    if "ids" not in index.prepared:
        index.prepared["ids"] = index.rows.ids
    found: Tensor = index.prepared["ids"]
    return found


OPERATIONS = operations(forward, backward)
