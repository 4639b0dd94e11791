"""Scored attention on a CPU: one fused pass over rows, and for gradients one over columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.availability import no_numba
from edgewise.kernels.edges.index import EdgeIndex, SplitCSR
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.flat import Heads, Rows, ready
from edgewise.kernels.scored.contract import KINDS, Found, Grads, Inputs, heads_in
from edgewise.kernels.threads import spread

name = "numba_scored"


def refuses(dtype: torch.dtype, device: str, widest: int) -> str | None:
    return no_numba(device)


@dataclass(frozen=True, eq=False)
class Asked:
    """One call: its graph, and its tensors as loops take them."""

    given: Inputs
    which: EdgeIndex

    @cached_property
    def tensors(self) -> list[Tensor | None]:
        """q, k, v, t and what dropout keeps."""
        kind, given = wide(self.given.v.dtype), self.given
        keep = None if given.keep is None else given.keep[..., None]
        return [
            None if x is None else ready(x, kind)
            for x in (given.q, given.k, given.v, given.t, keep)
        ]

    @cached_property
    def v(self) -> Tensor:
        found = self.tensors[2]
        assert found is not None
        return found

    @cached_property
    def heads(self) -> Heads:
        return heads_in(self.given.q, self.given.k, self.given.v)

    @property
    def inputs(self) -> list[list[Rows]]:
        return [self.heads.shared(x, self.v) for x in self.tensors]

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.heads.together, self.given.q.shape[2], self.v.shape[2]

    @property
    def form(self) -> tuple[int, Any]:
        slope = self.v.new_empty(0).numpy().dtype.type(self.given.slope)
        return KINDS.index(self.given.kind), slope

    def empty(self, rows: int, width: int) -> Tensor:
        return self.heads.empty(rows, width, self.v)[:, 0]

    def rows(self, *tensors: Tensor | None) -> list[list[Rows]]:
        return [self.heads.shared(x, self.v) for x in tensors]

    def laid(self, x: Tensor) -> Tensor:
        """In the order that the operator promises."""
        return x if self.heads.beside else x.contiguous()

    def grads(self, q: Tensor, k: Tensor, v: Tensor, t: Tensor | None) -> Grads:
        kind = self.given.v.dtype
        q, k, v = (self.laid(x).to(kind) for x in (q, k, v))
        return Grads(q, k, v, None if t is None else t.to(kind))

    def run(self, loop: Callable[..., None], half: SplitCSR, *arguments: Any) -> None:
        numbers = len(self.v) * half.edges * (self.given.q.shape[2] + self.v.shape[2])
        spread(loop, self.heads.calls(half.arrays, *arguments), half.arrays[0], numbers=numbers)


def forward(given: Inputs, which: EdgeIndex) -> Found:
    asked, pieces = Asked(given, which), which.rows
    out, lse = (asked.empty(pieces.results, width) for width in (given.v.shape[2], 1))
    inputs = (*asked.form, *asked.inputs, asked.sizes)
    asked.run(_loops().forward, which.rows, *inputs, *asked.rows(out, lse))
    sums, result = (asked.laid(x) for x in pieces.merged(lse[..., 0], out))
    kind = given.v.dtype
    return Found(result.to(kind), sums, given.v.new_empty(0, 0, 0), sums.new_empty(0, 0))


def backward(given: Inputs, found: Found, dout: Tensor, which: EdgeIndex) -> Grads:
    asked = Asked(given, which)
    kind = asked.v.dtype
    top = torch.where(found.lse == -torch.inf, torch.inf, found.lse).to(kind)[..., None]
    g = asked.heads.ordered(dout[:, None], kind)[:, 0]
    if given.kind == "additive":
        return _additive(asked, found, top, g)
    return _in_two_passes(asked, found, top, g)


def _additive(asked: Asked, found: Found, top: Tensor, g: Tensor) -> Grads:
    given, which = asked.given, asked.which
    q, (_, k, v, _, keep) = asked.tensors[0], asked.inputs
    assert q is not None
    known = asked.empty(q.shape[1], 3)
    torch.cat([q, top, (g * found.out.to(g.dtype)).sum(-1, keepdim=True)], -1, out=known)
    rows, columns = which.rows, which.columns
    dq, dk = asked.empty(rows.results, 1), asked.empty(columns.results, 1)
    dz, dv = asked.empty(which.rows.edges, 1), asked.empty(columns.results, given.v.shape[2])
    read, *grads = asked.rows(known, g, dz, dk, dv)
    turn, (_, slope) = which.rows.perm.numpy(), asked.form
    arguments = (turn, slope, read, k, v, keep, asked.sizes, *grads)
    asked.run(_loops().backward_additive, which.columns, *arguments)
    asked.run(_loops().totals, which.rows, asked.sizes, *asked.rows(dz, dq))
    return asked.grads(rows.summed(dq), columns.summed(dk), columns.summed(dv), None)


def _in_two_passes(asked: Asked, found: Found, top: Tensor, g: Tensor) -> Grads:
    given, which, heads = asked.given, asked.which, asked.heads
    number, slope = asked.form
    pieces, d = which.rows, given.q.shape[2]
    dq = asked.empty(pieces.results, d)
    sums = given.kind == "of sums"
    assert given.t is not None
    dt = (
        asked.v.new_empty(len(asked.v), pieces.results, d)
        if sums
        else asked.v.new_empty(given.t.shape)
    )
    room = asked.v.new_empty(heads.count, which.rows.edges, heads.together, 2)
    edge = 2 * heads.together
    pairs = [
        (room.numpy().reshape(-1), at * which.rows.edges * edge, edge, 2)
        for at in range(heads.count)
    ]
    known = asked.rows(top, ready(found.out, g.dtype), g)
    inputs = asked.inputs
    rows = (number, slope, *inputs, asked.sizes, *known, *asked.rows(dq, dt), pairs)
    asked.run(_loops().backward_rows, which.rows, *rows)
    across = which.columns
    dk, dv = (asked.empty(across.results, width) for width in (d, given.v.shape[2]))
    q, k, _, t, _ = inputs
    columns = (number, slope, q, k, t, asked.sizes, known[2], pairs, *asked.rows(dk, dv))
    turn = which.rows.perm.numpy()
    asked.run(_loops().backward_columns, which.columns, turn, *columns)
    extra = pieces.summed(dt).sum(1, keepdim=True) if sums else dt
    return asked.grads(pieces.summed(dq), across.summed(dk), across.summed(dv), extra)


def _loops() -> ModuleType:
    from edgewise.kernels.scored import loops

    return loops
