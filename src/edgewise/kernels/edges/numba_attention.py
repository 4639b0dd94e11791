"""Attention along edges on a CPU: loops over rows, and for gradients over columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.edges.attention import EdgeGrads, Inputs
from edgewise.kernels.edges.index import EdgeIndex, SplitCSR
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.flat import Heads, Rows, heads_of, ready
from edgewise.kernels.threads import spread

NONE = np.empty(0, np.int32)
NUMBERS = ("edge_bias", "edge_scale")  # of edges and heads; other terms are vectors
NARROW = 32  # numbers in a row of one head, below which heads are put side by side


@dataclass(frozen=True, eq=False)
class LoopCall:
    """One call, its tensors as loops take them."""

    inputs: Inputs
    q: Tensor
    k: Tensor
    v: Tensor
    heads: Heads

    @classmethod
    def of(cls, inputs: Inputs) -> LoopCall:
        kind = wide(inputs.v.dtype)
        q, k, v = (ready(x, kind) for x in (inputs.q, inputs.k, inputs.v))
        heads = heads_of(*inputs.heads, q, k, v)
        b, g = inputs.heads
        narrow = max(q.shape[-1], v.shape[-1]) < NARROW
        if b > 1 and g == 1 and not heads.beside and narrow:
            heads = replace(heads, beside=True)
            q, k, v = (
                heads.ordered(q, kind),
                *(heads.ordered(x[:, None], kind)[:, 0] for x in (k, v)),
            )
        return cls(inputs, q, k, v, heads)

    @property
    def index(self) -> EdgeIndex:
        return self.inputs.index

    def number(self, x: float) -> Any:
        return np.float32(x) if self.v.dtype == torch.float32 else np.float64(x)

    def form(self, again: bool) -> tuple[int, Any, Any, bool]:
        scale = self.inputs.scale if self.inputs.kind == 0 else 1.0
        return self.inputs.kind, self.number(scale), self.number(self.inputs.slope or 0.0), again

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.heads.together, self.q.shape[-1], self.v.shape[-1]

    @cached_property
    def rows(self) -> tuple[list[Rows], list[Rows], list[Rows]]:
        """Of q, k and v."""
        k, v = (self.heads.shared(x, self.v) for x in (self.k, self.v))
        return self.heads.rows(self.q, self.v), k, v

    @cached_property
    def none(self) -> list[Rows]:
        return self.heads.rows(None, self.v)

    @cached_property
    def vector(self) -> list[Rows]:
        inputs = self.inputs.vector
        return self.heads.shared(None if inputs is None else ready(inputs, self.v.dtype), self.v)

    @cached_property
    def terms(self) -> dict[str, list[Rows]]:
        """Those of edges: numbers (b, g, e), and vectors (b, e, width)."""
        inputs, kind = self.inputs.terms, self.v.dtype
        numbers = {name: x for name, x in inputs.items() if name in NUMBERS}
        vectors = {name: x for name, x in inputs.items() if name not in NUMBERS}
        found = {name: self.numbers(self.ordered(x)) for name, x in numbers.items()}
        return found | {n: self.heads.shared(ready(x, kind), self.v) for n, x in vectors.items()}

    def gradients(self) -> tuple[dict[str, Tensor], dict[str, list[Rows]]]:
        """Memory for those of terms, and its rows: vectors are summed over heads that share."""
        found, rows = {}, {}
        for name, x in self.inputs.terms.items():
            if name in NUMBERS:
                found[name] = self.empty(x.shape[2], 1)[..., 0]
                rows[name] = self.numbers(found[name])
            else:
                found[name] = torch.zeros(x.shape, dtype=self.v.dtype)
                rows[name] = self.heads.shared(found[name], self.v)
        return found, rows

    def term(self, name: str) -> list[Rows]:
        return self.terms.get(name, self.none)

    @cached_property
    def edge(self) -> np.ndarray:
        """The number of each edge, by columns, where it matters."""
        return self.index.rows.perm.numpy() if self.inputs.terms else NONE

    def drop(self) -> list[tuple[int, int, Any]]:
        """Of each call of a loop; heads are counted from that of the first."""
        drop, g = self.inputs.drop, self.heads.together
        if drop is None:
            return [(0, 0, self.number(0))] * self.heads.count
        keep = self.number(1 / (1 - drop.chance))
        return [(drop.seed + at * g, drop.least, keep) for at in range(self.heads.count)]

    def empty(self, rows: int, width: int) -> Tensor:
        return self.heads.empty(rows, width, self.v)

    def shared_empty(self, rows: int, width: int) -> Tensor:
        """(b, rows, width), in the order of the heads."""
        return replace(self.heads, g=1).empty(rows, width, self.v)[:, 0]

    def numbers(self, x: Tensor) -> list[Rows]:
        """Of (b, g, e)."""
        return self.heads.rows(x[..., None], self.v)

    def ordered(self, x: Tensor) -> Tensor:
        """(b, g, e) with the heads of an edge next to each other, as they are read."""
        if not self.heads.beside:
            return x.detach().to(self.v.dtype)
        return self.empty(x.shape[2], 1)[..., 0].copy_(x.detach())

    def per_edge(self) -> list[Rows]:
        """Memory for a number of each edge and head, a row of heads for each edge."""
        return self.heads.rows(self.empty(self.index.edges, 1), self.v)

    def run(self, name: str, csr: SplitCSR, *arguments: Any) -> None:
        calls = self.heads.calls(csr.arrays, *arguments)
        size = self.heads.b * self.heads.g * csr.edges * (self.q.shape[-1] + self.v.shape[-1])
        spread(loop(name), calls, csr.arrays[0], numbers=size)

    def weigh(self, csr: SplitCSR, lse: Tensor, plain: list[Rows] | None = None) -> list[Rows]:
        """The weight of each edge: by columns they are computed again, from the log-sum-exp."""
        again, (q, k, _) = csr is self.index.columns, self.rows
        weights = self.per_edge()
        names = ("edge_bias", "edge_scale", "edge_key")
        self.run(
            "weigh", csr, self.edge if again else NONE, self.form(again),
            *((k, q) if again else (q, k)), self.vector, *(self.term(name) for name in names),
            self.drop(), self.sizes, self.heads.rows(lse, self.v), weights, plain or self.none,
        )  # fmt: skip
        return weights

    def pull(
        self,
        csr: SplitCSR,
        x: list[Rows],
        weights: list[Rows],
        out: Tensor,
        *,
        turn: np.ndarray = NONE,
        per_edge: list[Rows] | None = None,
        each: list[Rows] | None = None,
    ) -> None:
        """The sums of rows of x, and of edges, times weights, into `out`."""
        edge = self.edge if csr is self.index.columns else NONE
        sizes = (self.heads.together, out.shape[-1])
        if out.shape[-1]:  # of known scores there is nothing to be summed
            self.run(
                "pull", csr, turn, edge, x, per_edge or self.none, sizes, weights,
                self.heads.rows(out, self.v), each or self.none,
            )  # fmt: skip


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    call = LoopCall.of(inputs)
    rows = inputs.index.rows
    out, lse = (call.empty(rows.results, width) for width in (inputs.v.shape[-1], 1))
    weights = call.weigh(rows, lse)
    call.pull(rows, call.rows[2], weights, out, per_edge=call.term("edge_value"))
    sums, found = rows.merged(lse[..., 0], out)
    return found.to(inputs.v.dtype), sums


def backward(inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor) -> EdgeGrads:
    """Weights are computed again, along columns, and gradients take their places."""
    call = LoopCall.of(inputs)
    columns, kind, heads, like = inputs.index.columns, call.v.dtype, call.heads, call.v
    g, delta = heads.ordered(dout, kind), call.empty(inputs.q.shape[2], 1)
    rows = [heads.rows(x, like) for x in (g, ready(out, kind), delta)]
    numbers = g.numel()
    calls = heads.calls((heads.together, g.shape[3]), *rows)
    spread(loop("row_dots"), calls, inputs.index.rows.ptr.numpy(), numbers=numbers)
    plain = call.per_edge() if "edge_scale" in inputs.terms else None
    weights = call.weigh(columns, heads.ordered(lse[..., None], kind), plain)
    dterms, into = call.gradients()
    dk, dv = (call.shared_empty(columns.results, x.shape[-1]) for x in (call.k, call.v))
    q, k, v = call.rows
    results = [into.get(x, call.none) for x in ("edge_bias", "edge_scale", "edge_value")]
    call.run(
        "push", columns, call.edge, call.form(True), q, k, v, rows[0], rows[2],
        call.term("edge_scale"), call.term("edge_value"), plain or call.none, call.drop(),
        call.sizes, weights, heads.shared(dk, like), heads.shared(dv, like), *results,
    )  # fmt: skip
    dq, dk, dvector = _of_scores(call, weights, dk, into.get("edge_key"))
    precision = inputs.v.dtype
    dvector = None if dvector is None else dvector.to(precision)
    terms = {name: x.to(inputs.terms[name].dtype) for name, x in dterms.items()}
    dv = columns.summed(dv)
    return EdgeGrads(dq.to(precision), dk.to(precision), dv.to(precision), dvector, terms)


def _of_scores(
    call: LoopCall, weights: list[Rows], dk: Tensor, each: list[Rows] | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """dq, dk and the gradient of the vector, from gradients of what scores are made of."""
    rows, columns = call.index.rows, call.index.columns
    turn, (q, k, _) = columns.perm.numpy(), call.rows
    dq = call.empty(rows.results, call.q.shape[-1])
    if call.inputs.kind == 1:
        sizes = (call.heads.together, 1)
        call.run("totals", rows, turn, sizes, weights, call.heads.rows(dq, call.v))
        return rows.summed(dq), columns.summed(dk), None
    if call.inputs.kind == 0:
        shared = dk[:, None].expand(-1, call.heads.g, -1, -1)
        call.pull(columns, q, weights, shared, each=each)
        call.pull(rows, k, weights, dq, turn=turn, per_edge=call.term("edge_key"))
        return rows.summed(dq), columns.summed(dk), None
    sizes, slope = call.sizes[:2], call.number(call.inputs.slope or 0.0)
    dvector = call.v.new_empty(len(call.v), rows.results, dq.shape[-1])
    into = call.heads.shared(dk, call.v), call.none
    call.run("pull_slopes", columns, NONE, slope, k, q, call.vector, sizes, weights, *into)
    into = call.heads.rows(dq, call.v), call.heads.shared(dvector, call.v)
    call.run("pull_slopes", rows, turn, slope, q, k, call.vector, sizes, weights, *into)
    total = rows.summed(dvector).sum(1, keepdim=True)
    return rows.summed(dq), columns.summed(dk), total


def products(inputs: Inputs) -> Tensor:
    """scale · q_i·(k_j + key_e) of each edge: (b, g, e)."""
    call = LoopCall.of(inputs)
    out = torch.empty(*inputs.heads, inputs.index.edges, dtype=call.v.dtype)
    read = (*call.rows[:2], call.term("edge_key"), call.sizes, call.number(inputs.scale))
    call.run("products", inputs.index.rows, *read, call.numbers(out))
    return out


def products_backward(inputs: Inputs, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """dq, dk and the gradient of the edges' keys."""
    call = LoopCall.of(inputs)
    rows, columns, (q, k, _) = inputs.index.rows, inputs.index.columns, call.rows
    weights = call.numbers((grad * inputs.scale).to(call.v.dtype))
    term = inputs.terms.get("edge_key")
    dkey = None if term is None else torch.zeros(term.shape, dtype=call.v.dtype)
    each = None if dkey is None else call.heads.shared(dkey, call.v)
    dq = call.empty(rows.results, call.q.shape[-1])
    dk = call.shared_empty(columns.results, call.k.shape[-1])
    call.pull(rows, k, weights, dq, per_edge=call.term("edge_key"))
    shared = dk[:, None].expand(-1, call.heads.g, -1, -1)
    call.pull(columns, q, weights, shared, turn=rows.perm.numpy(), each=each)
    return rows.summed(dq), columns.summed(dk), dkey


@lru_cache
def loop(name: str) -> Callable[..., None]:
    from edgewise.kernels.edges import attention_loops

    found: Callable[..., None] = getattr(attention_loops, name)
    return found
