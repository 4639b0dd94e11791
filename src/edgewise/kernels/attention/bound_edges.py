"""Attention along edges on a GPU without terms, bound to its launches: what follows from shapes and
strides is decided once, and a call allocates and launches."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import NO_TERMS, Case, Terms
from edgewise.kernels.attention.terms import edges_of
from edgewise.kernels.attention.triton.launch import (
    Floats,
    Launch,
    Launches,
    Steps,
    empty_on,
    is_current,
)
from edgewise.kernels.edges import triton_attention
from edgewise.kernels.edges.attention import TERMS, Inputs
from edgewise.kernels.edges.index import SplitCSR
from edgewise.kernels.edges.triton_attention import NO_CODE, EdgeCall

LaunchList = list[tuple[Launch, tuple[Tensor, ...]]]


class BoundEdges:
    """Both passes for tensors of some strides."""

    def __init__(
        self, name: str, case: Case, lead: tuple[int, ...], q: Tensor, k: Tensor, v: Tensor
    ) -> None:
        self.name, self.case, self.lead = name, case, lead
        self.forward = EdgeForward(case, lead, q, k, v).__call__
        self.back: dict[tuple[int, ...], EdgeBackward] = {}

    def backward(self, saved: tuple[Tensor, ...], dout: Tensor) -> tuple[Tensor, ...]:
        (q, k, v, out, lse), strides = saved, dout.stride()
        back = self.back.get(strides)
        if back is None:
            back = self.back[strides] = EdgeBackward(self.case, self.lead, q, k, v, out, dout)
        return back(q, k, v, out, lse, dout)


def edge_forward(case: Case, lead: tuple[int, ...], q: Tensor, k: Tensor, v: Tensor) -> EdgeForward:
    """For tensors of these strides, whose heads are the axes `lead`."""
    key = (lead, q.stride(), k.stride(), v.stride(), q.get_device())
    found: EdgeForward | None = case.prepared.get(key)
    if found is None:
        found = case.prepared[key] = EdgeForward(case, lead, q, k, v)
    return found


class EdgeForward:
    """The launches of a forward pass, for tensors of some strides."""

    def __init__(self, case: Case, lead: tuple[int, ...], q: Tensor, k: Tensor, v: Tensor) -> None:
        from edgewise.kernels.attention.triton import parts_kernels as triton_parts_kernels
        from edgewise.kernels.edges import triton_attention_kernels

        call = _call(case, q, k, v)
        csr, heads, width = call.inputs.index.rows, case.b * case.g, call.v.shape[-1]
        out = triton_attention.empty_rows(call.q, case.n, width)
        self.out, self.lse = _Rows.of(lead, out, case.dv), ((*lead, case.n), _strides(lead, case.n))
        self.slots, self.width = heads * csr.slots, width
        self.as_is = _same((q, k, v), (call.q, call.k, call.v))
        fixed, grid, meta = call.forward_arguments(out)
        self.forward = Launch(triton_attention_kernels.forward, grid, meta, fixed)
        options = {"BLOCK": 1, "DV": width, "WV": width, "num_warps": 1}
        self.merge = _after(triton_parts_kernels.merge, csr, out, options)
        self.device, self.dtype, self.launches = q.get_device(), q.dtype, Launches(self._steps)
        self.empty = empty_on(self.device)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if not is_current(self.device):
            with torch.cuda.device(self.device):
                return self(q, k, v)
        if not self.as_is:
            q, k, v = _readable(q, k, v)
        out = self.empty(self.out.size, self.out.stride, self.dtype)
        lse = part = self.empty(self.lse[0], self.lse[1], torch.float32)
        if self.slots:
            part = self.empty((self.slots * (self.width + 4),), (1,), torch.float32)
        results = (out.data_ptr(), lse.data_ptr(), part.data_ptr())
        key = (q.data_ptr(), k.data_ptr(), v.data_ptr(), *results)
        self.launches.at(self.device, key, q, k, v, out, lse, part)
        return self.out.cut(out), lse

    def _steps(self, *tensors: Tensor) -> Steps:
        q, k, v, out, lse, part = tensors
        part_out = part_lse = part
        if self.slots:
            part_out, part_lse = part[4 * self.slots :], part[: self.slots]
        parts = (part_out, part_lse, part_out, part_lse)
        steps: LaunchList = [(self.forward, (q, k, v, *(q,) * 7, out, lse, out, lse, *parts))]
        if self.slots:
            steps.append((self.merge, (out, lse, part_out, part_lse)))
        return steps


class EdgeBackward:
    """The launches of a backward pass, for tensors of some strides."""

    def __init__(
        self, case: Case, lead: tuple[int, ...],
        q: Tensor, k: Tensor, v: Tensor, out: Tensor, dout: Tensor,
    ) -> None:  # fmt: skip
        from edgewise.kernels.attention.triton.parts_kernels import add_up
        from edgewise.kernels.edges import triton_attention_kernels as kernels

        call, (g, found) = _call(case, q, k, v), _readable(dout, out)
        self.as_is = _same((q, k, v, out, dout), (call.q, call.k, call.v, found, g))
        rows, columns = call.inputs.index.rows, call.inputs.index.columns
        sizes = ((call.q, case.n, rows), (call.k, case.m, columns), (call.v, case.m, columns))
        grads = [triton_attention.empty_rows(x, many, x.shape[-1]) for x, many, _ in sizes]
        leads = (lead, k.shape[:-2], v.shape[:-2])
        self.grads = [
            _Rows.of(tuple(axes), grad, x.shape[-1])
            for axes, grad, x in zip(leads, grads, (q, k, v), strict=True)
        ]
        parts = [len(x) * csr.slots * x.shape[-1] for x, _, csr in sizes]
        self.floats = Floats(case.b * case.g * case.n * 2, *parts)
        fixed, grid, meta = call.rows_arguments(grads[0], g, found)
        self.rows = Launch(kernels.backward_rows, grid, meta, fixed)
        fixed, grid, meta = call.columns_arguments(grads[1], grads[2], g)
        self.columns = Launch(kernels.backward_columns, grid, meta, fixed)
        self.adds = [
            _after(add_up, csr, x, {"BLOCK": 1, "D": x.shape[-1], "WD": x.shape[-1]})
            for x, (_, _, csr) in zip(grads, sizes, strict=True)
        ]
        self.device, self.dtype, self.launches = q.get_device(), q.dtype, Launches(self._steps)
        self.empty = empty_on(self.device)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor
    ) -> tuple[Tensor, ...]:
        if not is_current(self.device):
            with torch.cuda.device(self.device):
                return self(q, k, v, out, lse, dout)
        if not self.as_is:
            q, k, v, out, dout = _readable(q, k, v, out, dout)
        grads = [self.empty(x.size, x.stride, self.dtype) for x in self.grads]
        scratch = self.empty((self.floats.size,), (1,), torch.float32)
        tensors = (q, k, v, dout, out, lse, *grads, scratch)
        self.launches.at(self.device, tuple([x.data_ptr() for x in tensors]), *tensors)
        return tuple([x.cut(grad) for x, grad in zip(self.grads, grads, strict=True)])

    def _steps(self, *tensors: Tensor) -> Steps:
        q, k, v, g, out, lse, dq, dk, dv, scratch = tensors
        stats, *parts = (self.floats.part(scratch, number) for number in range(4))
        absent = (q,) * 7
        of_rows = (q, k, v, *absent, g, out, lse, stats, *(dq,) * 4, stats, stats, parts[0])
        of_columns = (q, k, v, *absent, g, stats, dk, dv, dk, dv, parts[1], parts[2])
        steps: LaunchList = [(self.rows, of_rows), (self.columns, of_columns)]
        for number, grad in enumerate((dq, dk, dv)):
            if self.floats.sizes[number + 1]:
                steps.append((self.adds[number], (grad, parts[number])))
        return steps


class _Rows(NamedTuple):
    """Where a result is written, and how many of its features there are."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    features: int

    @classmethod
    def of(cls, lead: tuple[int, ...], x: Tensor, features: int) -> _Rows:
        """As (heads, rows, features) is, with the axes `lead` of heads."""
        return cls(
            (*lead, *x.shape[1:]), (*_strides(lead, x.stride(0))[:-1], *x.stride()[1:]), features
        )

    def cut(self, x: Tensor) -> Tensor:
        return x if self.features == self.size[-1] else x[..., : self.features]


def _call(case: Case, q: Tensor, k: Tensor, v: Tensor) -> EdgeCall:
    keys, values = (x.reshape(-1, *x.shape[-2:]) for x in (k, v))
    inputs = inputs_of(case, q.reshape(case.b, case.g, case.n, -1), keys, values, NO_TERMS)
    return EdgeCall.of(inputs, NO_CODE)


def _readable(*tensors: Tensor) -> tuple[Tensor, ...]:
    """With all heads on one axis, and as many features as kernels take."""
    return tuple([triton_attention.padded(x.reshape(-1, *x.shape[-2:])) for x in tensors])


def _same(tensors: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    """Whether kernels read tensors where they are."""
    return all(x.data_ptr() == y.data_ptr() for x, y in zip(tensors, others, strict=True))


def _after(kernel: object, csr: SplitCSR, x: Tensor, options: dict[str, int]) -> Launch:
    """What puts the parts of rows (or columns) together that are split."""
    fixed = (csr.split, csr.split_ptr, x.shape[1], csr.slots, *triton_attention.merged(x))
    return Launch(kernel, (len(csr.split), len(x)), {**options, "num_warps": 1}, fixed)


def _strides(lead: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Of axes of heads, where one head is a step from the next, and of their rows."""
    return (*[step * math.prod(lead[at + 1 :]) for at in range(len(lead))], 1)


def inputs_of(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Inputs:
    """As kernels along edges take them; the bias of pairs is one of edges already."""
    index = case.prepared.get(q.device)
    if index is None:
        index = case.prepared[q.device] = edges_of(case.graph, case.n, case.m, q.device)
    if terms is NO_TERMS:
        return Inputs(q, k, v, index, case.scale)
    listed = {name: x for name in TERMS if (x := getattr(terms, name)) is not None}
    return Inputs(q, k, v, index, case.scale, terms=listed, drop=terms.drop)
