"""Attention with a vector on each edge on a CPU: a pass by rows, for gradients one by columns too.

Beside the results it materialises two numbers per edge and head in the backward pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.edges.reference import wide
from edgewise.kernels.edges.relational import (
    RelationalInputs,
    merged,
    operations,
    steps_of,
    summed,
)
from edgewise.kernels.threads import spread

NUMBERS = {torch.float32: np.float32, torch.float64: np.float64}


class _LoopArguments:
    """The arguments that all loops share."""

    def __init__(self, inputs: RelationalInputs) -> None:
        self.inputs, self.kind = inputs, wide(inputs.v.dtype)
        self.batch, self.heads, width = len(inputs.q), inputs.heads, int(inputs.x.shape[-1])
        features = int(inputs.q.shape[-1]), width, int(inputs.v.shape[-1])
        self.sizes = (self.heads, *features)
        tensors = (inputs.q, inputs.k, inputs.v, inputs.x, inputs.a, inputs.b)
        found = [None if t is None else self._in_rows(t) for t in tensors]
        self.steps = tuple(s for t in found for s in ((0, 0) if t is None else steps_of(t)))
        self.read = [self._spans(t) for t in found] + [self.flat(inputs.bias)]
        self.work = self.batch * self.heads * inputs.index.edges * (sum(features) + width)

    def flat(self, x: Tensor | None) -> list[np.ndarray]:
        """The numbers of each element of the batch; none of what is absent."""
        if x is None:
            return [np.empty(0, NUMBERS[self.kind])] * self.batch
        x = x.detach().to(self.kind).contiguous()
        return [part.view(-1).numpy() for part in x.unbind(0)]

    def _in_rows(self, x: Tensor) -> Tensor:
        """With features next to each other; where they are, if possible."""
        x = x.detach().to(self.kind)
        return x if x.stride(-1) == 1 else x.contiguous()

    def _spans(self, x: Tensor | None) -> list[np.ndarray]:
        """All numbers between the first and the last of each element of the batch."""
        if x is None or not x.numel():
            return self.flat(x)
        size = 1 + sum((n - 1) * s for n, s in zip(x.shape[1:], x.stride()[1:], strict=True))
        return [part.as_strided((size,), (1,)).numpy() for part in x.unbind(0)]

    def empty(self, rows: int, like: Tensor) -> Tensor:
        return torch.empty(self.batch, rows, *like.shape[2:], dtype=self.kind)

    def drops(self) -> list[tuple[int, int, Any]]:
        drop, number = self.inputs.drop, NUMBERS[self.kind]
        if drop is None:
            return [(0, 0, number(0))] * self.batch
        factor = number(1 / (1 - drop.chance))
        return [(drop.seed + at * self.heads, drop.least, factor) for at in range(self.batch)]

    def run(self, name: str, graph: tuple[Any, ...], *each: list[Any], lists: Any = ()) -> None:
        from edgewise.kernels.edges import numba_relational_loops

        calls = [
            (graph, *lists, self.sizes, self.steps, *parts) for parts in zip(*each, strict=True)
        ]
        if calls:
            spread(getattr(numba_relational_loops, name), calls, graph[0], numbers=self.work)


def forward(inputs: RelationalInputs) -> tuple[Tensor, Tensor]:
    call, rows = _LoopArguments(inputs), inputs.index.rows
    h, width = inputs.heads, inputs.out_width
    out = torch.empty(call.batch, rows.results, h * width, dtype=call.kind)
    lse = out.new_empty(call.batch, rows.results, h)
    values = [inputs.values] * call.batch
    call.run(
        "forward", rows.arrays, call.drops(), values, *call.read, call.flat(out), call.flat(lse)
    )
    out, lse = merged(inputs, out, lse)
    return out.to(inputs.v.dtype), lse


def backward(inputs: RelationalInputs, out: Tensor, lse: Tensor, dout: Tensor) -> tuple[Any, ...]:
    call, rows, columns = _LoopArguments(inputs), inputs.index.rows, inputs.index.columns
    q, _, _, x, *_ = call.read
    dq, dk, dv = (
        call.empty(rows.results, inputs.q),
        call.empty(columns.results, inputs.k),
        call.empty(columns.results, inputs.v),
    )
    da = None if inputs.a is None else call.empty(rows.results, inputs.a)
    db = None if inputs.b is None else call.empty(columns.results, inputs.b)
    dx = torch.empty(inputs.x.shape, dtype=call.kind)
    used, ds = (dx.new_empty(call.batch, rows.edges, inputs.heads) for _ in range(2))
    values, g = [inputs.values] * call.batch, call.flat(dout)
    weights = call.flat(used), call.flat(ds)
    into = [call.flat(t) for t in (out, lse)], [call.flat(t) for t in (dq, da, dx)]
    call.run(
        "backward_rows", rows.arrays, call.drops(), values, *call.read, *into[0], g, *into[1],
        *weights,
    )  # fmt: skip
    lists, of_keys = (rows.perm.numpy(),), [call.flat(t) for t in (dk, db, dv)]
    call.run("backward_columns", columns.arrays, values, q, x, g, *weights, *of_keys, lists=lists)
    kind = inputs.v.dtype
    dq, dk, dv = summed(rows, dq, kind), summed(columns, dk, kind), summed(columns, dv, kind)
    of_query = None if da is None else summed(rows, da, kind)
    of_key = None if db is None else summed(columns, db, kind)
    return dq, dk, dv, dx.to(inputs.x.dtype), of_query, of_key, ds


OPERATIONS = operations(forward, backward)
