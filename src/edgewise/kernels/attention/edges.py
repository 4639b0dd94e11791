"""Attention over the listed edges of a graph, with the kernels of `kernels.edges`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.kernels.attention.autograd import Direct, gradients
from edgewise.kernels.attention.contract import (
    EDGE_TERMS,
    NO_TERMS,
    Case,
    Grads,
    Saved,
    Terms,
)
from edgewise.kernels.attention.terms import (
    Scores,
    TermGrads,
    Tile,
    edges_of,
    off_edges,
    on_edges,
    places,
)
from edgewise.kernels.attention.triton_launch import Launch, Launches, Steps, empty_on, is_current
from edgewise.kernels.attention.triton_score import Packed, functions, unit_of
from edgewise.kernels.chosen import no_numba, no_triton
from edgewise.kernels.edges import numba_attention, reference, triton_attention
from edgewise.kernels.edges.attention import TERMS, Inputs
from edgewise.kernels.edges.triton_attention import NO_CODE
from edgewise.scores.nodes import S

if TYPE_CHECKING:
    from edgewise.kernels.attention.layout import Layout

LIMIT = 1 << 29  # scores that gather and scatter store
HUB = 8e5  # on a GPU: the time of one more edge at one node, whose sums are one after another


@dataclass(frozen=True)
class EdgeKernel:
    """Loops on a CPU, or gather and scatter on any device.

    A score that is more than a dot product with factors and biases is computed between two
    passes, for all edges at once.
    """

    name: str
    kernel: ModuleType
    pair: float  # the time of one edge in pairs of a dense product

    def refuses(self, case: Case) -> str | None:
        if self.loops and (reason := no_numba(case.device)):
            return reason
        if not case.work:
            return "there are no pairs"
        if self.kernel is reference and case.work > LIMIT:
            return f"it would store {case.work:,} scores, more than {LIMIT:,}"
        return case.lacks(*EDGE_TERMS)

    def least(self, case: Case) -> float:
        """What it costs at least on a GPU: with edges spread evenly."""
        if case.device == "cpu" or self.refuses(case) is not None:
            return 0.0
        even = 0 if _is_large(case) else -(-case.pairs // case.n) + -(-case.pairs // case.m)
        return self.pair * case.work + 1e5 + HUB * even

    def cost(self, case: Case) -> float:
        if self.loops:
            return case.b * case.g * (self.pair * case.pairs + 8.0 * case.n) + 2e4
        hub = HUB * _longest(case) if case.device == "cuda" else 0.0
        return self.pair * case.work + 1e5 + hub

    def forward(
        self, case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms
    ) -> tuple[Tensor, Tensor]:
        if terms is NO_TERMS and (index := case.prepared.get(q.device)) is not None:
            inputs = Inputs(q, k, v, index, case.scale)
        else:
            terms = on_edges(case, terms)
            inputs = inputs_of(case, q, k, v, terms)
        if "score" in case.features:
            inputs = inputs.with_scores(self._scores(case, inputs, terms).values())
        found: tuple[Tensor, Tensor] = self.kernel.forward(inputs)
        return found

    def backward(self, case: Case, saved: Saved, dout: Tensor) -> Grads:
        terms = on_edges(case, saved.terms)
        inputs = inputs_of(case, saved.q, saved.k, saved.v, terms)
        if "score" in case.features:
            return self._of_scores(case, saved, dout, inputs, terms)
        found = self.kernel.backward(inputs, saved.out, saved.lse, dout)
        if terms is NO_TERMS:
            return Grads(found.q, found.k, found.v, NO_TERMS)
        each = _terms(found.terms)
        return Grads(found.q, found.k, found.v, off_edges(case, saved.terms, each))

    @cached_property
    def loops(self) -> bool:
        return self.kernel is numba_attention

    def _scores(self, case: Case, inputs: Inputs, terms: Terms) -> Scores:
        i, j = places(case.graph, case.n, case.m, inputs.q.device)
        tile = Tile(i, j, torch.arange(len(i), device=i.device))
        return Scores(case, terms, tile, self.kernel.products(inputs))

    def _of_scores(
        self, case: Case, saved: Saved, dout: Tensor, inputs: Inputs, terms: Terms
    ) -> Grads:
        scores, total = self._scores(case, inputs, terms), TermGrads(case, terms)
        inner = inputs.with_scores(scores.values())
        found = self.kernel.backward(inner, saved.out, saved.lse, dout)
        ds = scores.backward(found.terms["edge_bias"], total)
        dq, dk, total.edge_key = self.kernel.products_backward(inputs, ds)
        total.edge_value = found.terms.get("edge_value")
        each, kind = off_edges(case, saved.terms, total.terms()), saved.q.dtype
        return Grads(dq.to(kind), dk.to(kind), found.v, each)


@dataclass(frozen=True)
class TritonEdgeKernel:
    """One launch on a GPU; scores are functions of Triton."""

    name: str = "triton_csr"
    pair: float = 40.0  # the time of one edge in pairs of a dense product in bf16

    def refuses(self, case: Case) -> str | None:
        if reason := no_triton(case.device):
            return reason
        if not case.work:
            return "there are no pairs"
        if case.dtype == torch.float64:
            return "it does not compute in float64"
        if (width := max(case.d, case.dv)) > triton_attention.WIDEST:
            return f"{width} features are more than {triton_attention.WIDEST}"
        return case.lacks(*EDGE_TERMS)

    def cost(self, case: Case) -> float:
        slow = 1e3 if case.device == "cpu" else 1.0
        return slow * case.b * case.g * self.pair * (case.pairs + case.n)

    def forward(
        self, case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms
    ) -> tuple[Tensor, Tensor]:
        if terms is NO_TERMS and "score" not in case.features:
            return edge_forward(case, (case.b, case.g), q, k, v)(q, k, v)
        inputs = inputs_of(case, q, k, v, on_edges(case, terms))
        return triton_attention.forward(inputs, _code(case, terms, q.device))

    def backward(self, case: Case, saved: Saved, dout: Tensor) -> Grads:
        terms = on_edges(case, saved.terms)
        inputs = inputs_of(case, saved.q, saved.k, saved.v, terms)
        code = _code(case, terms, dout.device)
        if case.learns and terms.tables:
            code = code._replace(unit=unit_of(dout, saved.v, case.b * case.g * case.n))
        found, packed = triton_attention.backward(inputs, saved.out, saved.lse, dout, code)
        tables = tuple(torch.zeros_like(table) for table in terms.tables)
        if packed is not None:
            tables = Packed.of(tables, dout.device).split(packed, tables)
        each = _terms(found.terms, tables)
        return Grads(found.q, found.k, found.v, off_edges(case, saved.terms, each))

    def bind(self, case: Case, layout: Layout) -> Direct | None:
        """A call without terms: nothing is reshaped before the backward pass."""
        if case.features:
            return None
        return Direct(self.name, lambda *tensors: BoundEdges(self, case, layout, *tensors))


class BoundEdges:
    """Both passes for tensors of some strides."""

    def __init__(
        self, kernel: TritonEdgeKernel, case: Case, layout: Layout, q: Tensor, k: Tensor, v: Tensor
    ) -> None:
        self.kernel, self.name, self.case, self.layout = kernel, kernel.name, case, layout
        self.forward = EdgeForward(case, layout.lead, q, k, v).__call__

    def backward(self, saved: tuple[Tensor, ...], dout: Tensor) -> tuple[Tensor, ...]:
        case, (q, k, v, out, lse) = self.case, saved
        shape = (case.b, case.g, case.n)
        out, dout = out.reshape(*shape, case.dv), dout.reshape(*shape, case.dv)
        inputs = self.layout.tensors(q, k, v)
        state = Saved(*inputs, NO_TERMS, out, lse.reshape(shape))
        found = gradients(self.kernel, case, state, dout, None)
        return found.q.reshape(q.shape), found.k.reshape(k.shape), found.v.reshape(v.shape)


def edge_forward(case: Case, lead: tuple[int, ...], q: Tensor, k: Tensor, v: Tensor) -> EdgeForward:
    """For tensors of these strides, whose heads are the axes `lead`."""
    key = (lead, q.stride(), k.stride(), v.stride(), q.get_device())
    found: EdgeForward | None = case.prepared.get(key)
    if found is None:
        found = case.prepared[key] = EdgeForward(case, lead, q, k, v)
    return found


class EdgeForward:
    """The launches of a forward pass without terms, for tensors of some strides."""

    def __init__(self, case: Case, lead: tuple[int, ...], q: Tensor, k: Tensor, v: Tensor) -> None:
        from edgewise.kernels.attention import triton_parts_kernels
        from edgewise.kernels.edges import triton_attention_kernels

        keys, values = _flat(k, v)
        inputs = inputs_of(case, q.reshape(case.b, case.g, case.n, -1), keys, values, NO_TERMS)
        call, csr = triton_attention.EdgeCall.of(inputs, NO_CODE), inputs.index.rows
        heads, width = case.b * case.g, call.v.shape[-1]
        out = triton_attention.empty_rows(call.q, case.n, width)
        self.dv, self.exact, self.slots = case.dv, width == case.dv, heads * csr.slots
        self.lse, self.out = (*lead, case.n), (*lead, case.n, width)
        self.lse_stride = (*_strides(lead, case.n), 1)
        self.out_stride = (*_strides(lead, out.stride(0)), *out.stride()[1:])
        pairs = ((q, call.q), (k, call.k), (v, call.v))
        self.as_is = all(x.data_ptr() == y.data_ptr() for x, y in pairs)
        fixed, grid, meta = call.forward_arguments(out)
        self.forward = Launch(triton_attention_kernels.forward, grid, meta, fixed)
        rows = (csr.split, csr.split_ptr, case.n, csr.slots, *triton_attention.merged(out))
        options = {"BLOCK": 1, "DV": width, "num_warps": 1}
        self.merge = Launch(triton_parts_kernels.merge, (len(csr.split), heads), options, rows)
        self.device, self.dtype, self.launches = q.get_device(), q.dtype, Launches(self._steps)
        self.empty = empty_on(self.device)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if not is_current(self.device):
            with torch.cuda.device(self.device):
                return self(q, k, v)
        if not self.as_is:
            q, k, v = (triton_attention.padded(x) for x in _flat(q, k, v))
        out = self.empty(self.out, self.out_stride, self.dtype)
        lse = part = self.empty(self.lse, self.lse_stride, torch.float32)
        if self.slots:
            part = self.empty((self.slots * (self.out[-1] + 4),), (1,), torch.float32)
        results = (out.data_ptr(), lse.data_ptr(), part.data_ptr())
        key = (q.data_ptr(), k.data_ptr(), v.data_ptr(), *results)
        self.launches.at(self.device, key, q, k, v, out, lse, part)
        return out if self.exact else out[..., : self.dv], lse

    def _steps(self, *tensors: Tensor) -> Steps:
        q, k, v, out, lse, part = tensors
        part_out = part_lse = part
        if self.slots:
            part_out, part_lse = part[4 * self.slots :], part[: self.slots]
        parts = (part_out, part_lse, part_out, part_lse)
        steps: list[tuple[Launch, tuple[Tensor, ...]]] = [
            (self.forward, (q, k, v, *(q,) * 7, out, lse, out, lse, *parts))
        ]
        if self.slots:
            steps.append((self.merge, (out, lse, part_out, part_lse)))
        return steps


def _flat(*tensors: Tensor) -> tuple[Tensor, ...]:
    """With all heads on one axis."""
    return tuple(x.reshape(-1, *x.shape[-2:]) for x in tensors)


def _strides(lead: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Of axes of heads, where one head is a step from the next."""
    return tuple([step * math.prod(lead[at + 1 :]) for at in range(len(lead))])


def _code(case: Case, terms: Terms, device: torch.device) -> triton_attention.ScoreCode:
    if case.score == S:
        return triton_attention.NO_CODE
    code, packed = functions(case.score), Packed.of(terms.tables, device, case.score)
    spread = code.spread if case.learns and terms.tables else None
    return triton_attention.ScoreCode(code.value, code.slope, spread, packed.tables, packed.sizes)


csr = EdgeKernel("csr", numba_attention, 6.0)
gather = EdgeKernel("gather", reference, 60.0)
triton_csr = TritonEdgeKernel()


def inputs_of(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Inputs:
    """As kernels along edges take them; the bias of pairs is one of edges already."""
    index = case.prepared.get(q.device)
    if index is None:
        index = case.prepared[q.device] = edges_of(case.graph, case.n, case.m, q.device)
    if terms is NO_TERMS:
        return Inputs(q, k, v, index, case.scale)
    listed = {name: x for name in TERMS if (x := getattr(terms, name)) is not None}
    return Inputs(q, k, v, index, case.scale, terms=listed, drop=terms.drop)


def _terms(found: Mapping[str, Tensor], tables: tuple[Tensor, ...] = ()) -> Terms:
    return Terms.of([None, *(found.get(name) for name in TERMS), *tables])


def _longest(case: Case) -> int:
    """The most edges at one query and at one key, unless they are too many to be listed."""
    if _is_large(case):
        return 0
    found = edges_of(case.graph, case.n, case.m, torch.device("cpu"))
    return sum(int(half.ptr.diff().max()) for half in (found.rows, found.columns))


def _is_large(case: Case) -> bool:
    """Whether other kernels cost less whatever the hubs."""
    return case.pairs > 4 * max(case.n, case.m)
