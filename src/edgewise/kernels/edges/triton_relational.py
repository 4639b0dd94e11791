"""Attention with a vector on each edge on a GPU: programs over rows, over edges and over columns.

The backward pass stores two numbers per edge and head, as on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.edges.relational import RelationalInputs, operations

EDGES, WIDEST = 16, 256  # edges that a program reads at a time, and features that it holds


class _Launch:
    """The arguments that kernels share."""

    def __init__(self, inputs: RelationalInputs) -> None:
        self.inputs, csr = inputs, inputs.index.rows
        tensors = (inputs.q, inputs.k, inputs.v, inputs.x, inputs.a, inputs.b, inputs.bias)
        q = inputs.q.contiguous()
        self.read = [q if t is None else t.contiguous() for t in tensors]
        self.batch, self.heads = len(q), inputs.heads
        self.counts = (inputs.q.shape[1], inputs.k.shape[1], csr.edges, self.heads)
        drop = inputs.drop
        self.drop = (0, 0, 1.0) if drop is None else (drop.seed, drop.least, 1 / (1 - drop.chance))
        width, alone = int(inputs.x.shape[-1]), inputs.x.shape[2] == 1
        self.apart = {"APART": 0 if alone else width, "STEP": int(inputs.x.shape[2]) * width}
        self.w = {"W": width, "WB": _power(width)}
        d, dv = int(inputs.q.shape[-1]), int(inputs.v.shape[-1])
        self.sizes = self.w | {"D": d, "DV": dv, "DB": _power(d), "VB": _power(dv), "E": EDGES}
        self.meets = {"QUERIES": inputs.a is not None, "KEYS": inputs.b is not None}
        self.terms = {"BIAS": inputs.bias is not None, "DROP": drop is not None}

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(self.batch, *shape, dtype=torch.float32, device=self.inputs.q.device)


def _power(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def forward(inputs: RelationalInputs) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.edges import triton_relational_kernels as kernels

    call, csr, n = _Launch(inputs), inputs.index.rows, inputs.q.shape[1]
    out = inputs.v.new_empty(call.batch, n, call.heads * inputs.out_width)
    lse = call.empty(n, call.heads)
    if grid := n * call.batch * call.heads:
        kernels.forward[grid,](
            *call.read, out, lse, csr.ptr, csr.index, *call.counts, *call.drop,
            VALUES=inputs.values, **call.meets, **call.terms, **call.sizes, **call.apart,
        )  # fmt: skip
    return out, lse


def backward(inputs: RelationalInputs, out: Tensor, lse: Tensor, dout: Tensor) -> tuple[Any, ...]:
    from edgewise.kernels.edges import triton_relational_kernels as kernels

    call, rows, columns = _Launch(inputs), inputs.index.rows, inputs.index.columns
    q, _, _, x, a, b, _ = call.read
    dq, dk, dv, dx = (torch.empty_like(t) for t in call.read[:4])
    da, db = torch.empty_like(a), torch.empty_like(b)
    used, ds = (call.empty(rows.edges, call.heads) for _ in range(2))
    g, values = dout.contiguous(), {"VALUES": inputs.values}
    n, m, _, heads = call.counts
    if n * call.batch * heads:
        kernels.backward_rows[n * call.batch * heads,](
            *call.read, out.contiguous(), lse.contiguous(), g, dq, da, used, ds, rows.ptr,
            rows.index, *call.counts, *call.drop,
            **values, **call.meets, **call.terms, **call.sizes, **call.apart,
        )  # fmt: skip
    blocks = -(-rows.edges // EDGES) * call.batch * int(inputs.x.shape[2])
    if blocks:
        kernels.backward_edges[blocks,](
            a, b, g, used, ds, dx, rows.ids, rows.index, *call.counts,
            **values, **call.meets, **call.w, **call.apart, E=EDGES, DV=call.sizes["DV"],
        )  # fmt: skip
    if m * call.batch * heads:
        kernels.backward_columns[m * call.batch * heads,](
            q, x, g, used, ds, dk, db, dv, columns.ptr, columns.index, rows.perm, *call.counts,
            **values, KEYS=call.meets["KEYS"], **call.sizes, **call.apart,
        )  # fmt: skip
    of_query, of_key = (None if t is None else d for t, d in ((inputs.a, da), (inputs.b, db)))
    return dq, dk, dv, dx, of_query, of_key, ds


OPERATIONS = operations(forward, backward)
