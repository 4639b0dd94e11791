"""Attention with a vector on each edge on a GPU: programs over rows, over edges and over columns.

The backward pass stores two numbers per edge and head, as on a CPU.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.index import SplitCSR
from edgewise.kernels.edges.relational import RelationalInputs, merged, operations, steps_of, summed
from edgewise.kernels.edges.triton_segments import work

WIDE = 128  # features of all heads that one program takes, if each has fewer
NUMBERS, MOST = 512, 16  # numbers that a warp reads of one tensor at a time, and edges at most
LONG, WARPS = 64, 4  # a mean of so many edges is worth so many warps
EDGES = 16  # of which a program computes the gradients of vectors


class _Launch:
    """The arguments that kernels share; what is absent is q."""

    def __init__(self, inputs: RelationalInputs) -> None:
        self.inputs, csr = inputs, inputs.index.rows
        q = _in_rows(inputs.q)
        found = [q if t is None else _in_rows(t) for t in (inputs.k, inputs.v, inputs.a, inputs.b)]
        bias = q if inputs.bias is None else inputs.bias.contiguous()
        self.read = [q, *found[:2], inputs.x.contiguous(), *found[2:], bias]
        self.steps = tuple(s for t in (q, *found) for s in steps_of(t))
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
    """With features next to each other and batches row after row; where they are, if possible."""
    each = len(x) == 1 or x.stride(0) == x.shape[1] * x.stride(1)
    return x if each and x.stride(-1) == 1 else x.contiguous()


def _power(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def forward(inputs: RelationalInputs) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.edges import triton_relational_kernels as kernels

    call, csr = _Launch(inputs), inputs.index.rows
    out = call.results(csr, call.heads * inputs.out_width)
    lse = call.empty(csr.results, call.heads)
    groups, grid = call.groups(csr)
    if grid:
        kernels.forward[grid,](
            *call.read, out, lse, *work(csr), *call.counts, csr.results, groups, *call.drop,
            *call.steps,
            VALUES=inputs.values, **call.meets, **call.terms, **call.sizes, **call.apart,
            **call.share(csr),
        )  # fmt: skip
    out, lse = merged(inputs, out, lse)
    return out.to(inputs.v.dtype), lse


def backward(inputs: RelationalInputs, out: Tensor, lse: Tensor, dout: Tensor) -> tuple[Any, ...]:
    from edgewise.kernels.edges import triton_relational_kernels as kernels

    call, rows, columns = _Launch(inputs), inputs.index.rows, inputs.index.columns
    q, k, v, x, a, b, _ = call.read
    dq, da = (call.results(rows, *t.shape[2:]) for t in (q, a))
    dk, db, dv = (call.results(columns, *t.shape[2:]) for t in (k, b, v))
    dx, g, values = torch.empty_like(x), dout.contiguous(), {"VALUES": inputs.values}
    used, ds = (call.empty(rows.edges, call.heads) for _ in range(2))
    groups, grid = call.groups(rows)
    if grid:
        kernels.backward_rows[grid,](
            *call.read, out.contiguous(), lse.contiguous(), g, dq, da, used, ds, *work(rows),
            *call.counts, rows.results, groups, *call.drop, *call.steps,
            **values, **call.meets, **call.terms, **call.sizes, **call.apart, **call.share(rows),
        )  # fmt: skip
    if blocks := -(-rows.edges // EDGES) * call.batch * int(inputs.x.shape[2]):
        kernels.backward_edges[blocks,](
            a, b, g, used, ds, dx, rows.ids, rows.index, *call.counts, *call.steps[6:],
            **values, **call.meets, **call.w, **call.apart, E=EDGES, DV=call.sizes["DV"],
            num_warps=1 if EDGES * call.w["WB"] <= NUMBERS else WARPS,
        )  # fmt: skip
    groups, grid = call.groups(columns)
    if grid:
        kernels.backward_columns[grid,](
            q, x, g, used, ds, dk, db, dv, *work(columns), rows.perm, *call.counts,
            columns.results, groups, *call.steps[:2],
            **values, KEYS=call.meets["KEYS"], **call.sizes, **call.apart, **call.share(columns),
        )  # fmt: skip
    kind = inputs.v.dtype
    dq, dk, dv = (summed(c, t, kind) for c, t in ((rows, dq), (columns, dk), (columns, dv)))
    of_query = None if inputs.a is None else summed(rows, da, kind)
    of_key = None if inputs.b is None else summed(columns, db, kind)
    return dq, dk, dv, dx, of_query, of_key, ds


OPERATIONS = operations(forward, backward)
