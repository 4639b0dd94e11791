"""Attention over the listed edges of a graph, with the kernels of `kernels.edges`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.kernels.attention.autograd import Direct
from edgewise.kernels.attention.bound_edges import BoundEdges, edge_forward, inputs_of
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
from edgewise.kernels.attention.triton.score import Packed, functions, unit_of
from edgewise.kernels.edges import numba_attention, reference, triton_attention
from edgewise.kernels.edges.attention import TERMS, Inputs
from edgewise.kernels.kernel_choices import no_numba, no_triton
from edgewise.scores.nodes import S

if TYPE_CHECKING:
    from edgewise.kernels.attention.calls.layout import Layout

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
        return Direct(
            self.name, lambda *tensors: BoundEdges(self.name, case, layout.lead, *tensors)
        )


def _code(case: Case, terms: Terms, device: torch.device) -> triton_attention.ScoreCode:
    if case.score == S:
        return triton_attention.NO_CODE
    code, packed = functions(case.score), Packed.of(terms.tables, device, case.score)
    spread = code.spread if case.learns and terms.tables else None
    return triton_attention.ScoreCode(code.value, code.slope, spread, packed.tables, packed.sizes)


csr = EdgeKernel("csr", numba_attention, 6.0)
gather = EdgeKernel("gather", reference, 60.0)
triton_csr = TritonEdgeKernel()


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
