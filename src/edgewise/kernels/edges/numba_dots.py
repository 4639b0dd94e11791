"""Dot products without terms on a CPU: passes prepared for shapes and strides.

The passes are those of `numba_attention`. What tensors lie like decides how loops read them, so a
repeated call allocates its results and runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.edges.attention import Inputs
from edgewise.kernels.edges.numba_attention import NONE, LoopCall, loop
from edgewise.kernels.flat import FlatLayout, Heads, by_call, numbers_of, ready
from edgewise.kernels.threads import spread


class _Dots:
    """What both directions share, from tensors like those of every call."""

    def __init__(self, inputs: Inputs) -> None:
        call = LoopCall.of(inputs)
        self.heads, self.index, self.dtype = call.heads, inputs.index, inputs.v.dtype
        self.kind, self.sizes, self.count = call.v.dtype, call.sizes, call.heads.count
        pairs = ((call.q, inputs.q), (call.k, inputs.k), (call.v, inputs.v))
        self.read = [self.heads.layout(x, of) for x, of in pairs]
        self.weights = self.empty(self.index.edges, 1)
        self.none, self.drop = call.none[0], call.drop()[0]
        self.form, self.again = call.form(False), call.form(True)
        self.numbers = (
            inputs.q.shape[0] * inputs.q.shape[1] * self.index.edges * sum(self.sizes[1:])
        )

    def empty(self, rows: int, width: int) -> FlatLayout:
        """Of memory for (b, g, rows, width), in the order of the heads."""
        return self.heads.layout(self.heads.empty(rows, width, torch.empty(0, dtype=self.kind)))

    def shared(self, rows: int, width: int) -> FlatLayout:
        """Of memory for (b, rows, width)."""
        one = Heads(self.heads.b, 1, self.heads.beside)
        return self.heads.layout(one.empty(rows, width, torch.empty(0, dtype=self.kind))[:, 0])


class ForwardDots(_Dots):
    """`out` and `lse` of q, k and v with some strides."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.csr = self.index.rows
        self.split = self.csr.is_split
        self.out = self.empty(self.csr.results, self.sizes[2])
        self.lse = self.empty(self.csr.results, 1)
        self.layouts = (*self.read, self.out, self.lse)
        self.places = by_call((*self.layouts, self.weights))
        self.weigh, self.pull = loop("weigh"), loop("pull")

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.empty_strided(self.out.shape, self.out.stride, dtype=self.kind)
        lse = torch.empty_strided(self.lse.shape, self.lse.stride, dtype=self.kind)
        arrays = numbers_of(self.layouts, (q, k, v, out, lse))
        arrays.append(np.empty(self.weights.size, arrays[-1].dtype))
        graph, none, width = self.csr.arrays, self.none, (self.sizes[0], self.sizes[2])
        weigh, pull = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for places in self.places:
            listed = zip(arrays, places, strict=True)
            q_, k_, v_, o, s, w = [(numbers, *place) for numbers, place in listed]
            first = (graph, NONE, self.form, q_, k_, none, none, none, none)
            weigh.append((*first, self.drop, self.sizes, s, w, none))
            pull.append((graph, NONE, NONE, v_, none, width, w, o, none))
        spread(self.weigh, weigh, graph[0], numbers=self.numbers)
        if width[1]:
            spread(self.pull, pull, graph[0], numbers=self.numbers)
        sums = lse[..., 0]
        if self.split:
            sums, out = self.csr.merged(sums, out)
        return out if self.dtype == self.kind else out.to(self.dtype), sums


class BackwardDots(_Dots):
    """dq, dk and dv, for tensors with some strides: `numba_attention.backward`, prepared."""

    def __init__(self, inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor) -> None:
        super().__init__(inputs)
        self.rows, self.columns, heads = self.index.rows, self.index.columns, self.heads
        _, d, dv = self.sizes
        lse = lse[..., None]
        ordered = [(heads.ordered(x, self.kind), x) for x in (dout, lse)]
        pairs = (ordered[0], (ready(out, self.kind), out), ordered[1])
        self.state = [heads.layout(x, of) for x, of in pairs]
        self.delta = self.empty(inputs.q.shape[2], 1)
        self.dq = self.empty(self.rows.results, d)
        self.dk, self.dv = (self.shared(self.columns.results, width) for width in (d, dv))
        self.ptr, self.turn = self.rows.ptr.numpy(), self.columns.perm.numpy()
        names = ("row_dots", "weigh", "push", "pull")
        self.row_dots, self.weigh, self.push, self.pull = (loop(name) for name in names)
        self.outputs, self.new = dout.numel(), (self.delta, self.weights)
        self.layouts = (*self.read, *self.state, self.dq, self.dk, self.dv)
        self.places = by_call((*self.layouts, *self.new))

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = self.dq.empty(), self.dk.empty(), self.dv.empty()
        tensors = (q, k, v, dout, out, lse[..., None], dq, dk, dv)
        arrays = numbers_of(self.layouts, tensors)
        arrays += [np.empty(layout.size, arrays[-1].dtype) for layout in self.new]
        none, drop, form, (heads, d, width) = self.none, self.drop, self.again, self.sizes
        near, far = self.rows.arrays, self.columns.arrays
        calls: list[list[tuple[Any, ...]]] = [[], [], [], [], []]
        for places in self.places:
            listed = zip(arrays, places, strict=True)
            q_, k_, v_, g, o, s, dq_, dk_, dv_, delta, w = [(x, *place) for x, place in listed]
            calls[0].append(((heads, width), g, o, delta))
            first = (far, NONE, form, k_, q_, none, none, none, none)
            calls[1].append((*first, drop, self.sizes, s, w, none))
            second = (far, NONE, form, q_, k_, v_, g, delta, none, none, none)
            calls[2].append((*second, drop, self.sizes, w, dk_, dv_, none, none, none))
            calls[3].append((far, NONE, NONE, q_, none, (heads, d), w, dk_, none))
            calls[4].append((near, self.turn, NONE, k_, none, (heads, d), w, dq_, none))
        spread(self.row_dots, calls[0], self.ptr, numbers=self.outputs)
        spread(self.weigh, calls[1], far[0], numbers=self.numbers)
        spread(self.push, calls[2], far[0], numbers=self.numbers)
        if d:
            spread(self.pull, calls[3], far[0], numbers=self.numbers)
            spread(self.pull, calls[4], near[0], numbers=self.numbers)
        if self.rows.is_split or self.columns.is_split:
            dq, dk, dv = self.rows.summed(dq), self.columns.summed(dk), self.columns.summed(dv)
        if self.dtype == self.kind:
            return dq, dk, dv
        return dq.to(self.dtype), dk.to(self.dtype), dv.to(self.dtype)
