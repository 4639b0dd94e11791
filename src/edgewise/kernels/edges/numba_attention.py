"""Attention along edges on a CPU: loops over rows, and for gradients over columns.

Shapes and strides decide how loops read tensors, so a pass is prepared once for them and cached
with the index: a repeated call allocates its results and runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.edges.attention import TERMS, EdgeGrads, Inputs
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.flat import FlatLayout, heads_of, ready
from edgewise.kernels.threads import spread

NUMBERS = ("edge_bias", "edge_scale")  # of edges and heads; other terms are vectors
NARROW = 32  # numbers in a row of one head, below which heads are put side by side
MOST = 64  # prepared passes of one index


class _Pass:
    """Loops over the edges, for tensors with the shapes and strides of `inputs`.

    `values` are the arguments of loops by name. Those of a tensor are its rows, and differ from
    call to call; `d.x` is the gradient of x, and `columns.x` are numbers of edges by columns.
    """

    def __init__(self, inputs: Inputs) -> None:
        index = self.index = inputs.index
        self.dtype, self.kind = inputs.v.dtype, wide(inputs.v.dtype)
        q, k, v = (ready(_like(x), self.kind) for x in (inputs.q, inputs.k, inputs.v))
        heads = heads_of(*inputs.heads, q, k, v)
        narrow = max(q.shape[-1], v.shape[-1]) < NARROW
        if heads.b > 1 and heads.g == 1 and not heads.beside and narrow:
            heads = replace(heads, beside=True)
            q = heads.ordered(q, self.kind)
            k, v = (heads.ordered(x[:, None], self.kind)[:, 0] for x in (k, v))
        self.heads, self.d, self.dv = heads, q.shape[-1], v.shape[-1]
        self.work = heads.b * heads.g * index.edges * (self.d + self.dv)
        number = self.number = np.float32 if self.kind == torch.float32 else np.float64
        kind, together = inputs.kind, heads.together
        scale, slope = number(inputs.scale if kind == 0 else 1.0), number(inputs.slope or 0.0)
        none = (np.empty(0, number), 0, 0, 0)
        self.values: dict[str, Any] = {
            "rows": index.rows.arrays, "columns": index.columns.arrays,
            # the number by rows of entries by columns, and the other way round
            "edge": index.rows.perm.numpy(), "turn": index.columns.perm.numpy(),
            "in_order": np.empty(0, np.int32), "scale": scale, "slope": slope,
            "heads": together, "sizes": (together, self.d, self.dv),
            "key_size": (together, self.d), "value_size": (together, self.dv),
            "forward": (kind, scale, slope, False), "backward": (kind, scale, slope, True),
            "drop": (0, 0, number(0)), "none": none, "vector": none, "plain": none,
            **{x + name: none for name in TERMS for x in ("", "columns.", "d.", "columns.d.")},
        }  # fmt: skip
        self.layouts: dict[str, FlatLayout] = {}
        self.loops: list[tuple[Callable[..., None], Callable[[dict[str, Any]], Any], Any]] = []
        ordered = {"q": q, "k": k, "v": v}
        for name, x in _tensors(inputs).items():
            found = ordered.get(name)
            if found is None:
                found = ready(_like(x), self.kind)
            if name in NUMBERS and heads.beside:
                found = heads.empty(x.shape[2], 1, found)
            self.layouts[name] = heads.layout(found, x)

    def read(self, name: str, x: Tensor, *, ordered: bool = True) -> None:
        """A tensor beside the inputs, with heads in their order if it is read at random."""
        found = (self.heads.ordered if ordered else ready)(_like(x), self.kind)
        self.layouts[name] = self.heads.layout(found, x)

    def write(self, name: str, rows: int, width: int, *, shared: bool = False) -> None:
        """Memory for (b, g, rows, width), or for the queries that share a key (b, rows, width)."""
        heads = replace(self.heads, g=1) if shared else self.heads
        found = heads.empty(rows, width, torch.empty(0, dtype=self.kind, device="meta"))
        self.layouts[name] = self.heads.layout(found[:, 0] if shared else found)

    def add(self, name: str, arguments: str, ptr: np.ndarray | None = None) -> None:
        """A loop over the pieces of its first argument, or the rows of `ptr`."""
        names = arguments.split()
        pieces = self.values[names[0]][0] if ptr is None else ptr
        self.loops.append((loop(name), itemgetter(*names), pieces))

    def run(self, inputs: Inputs, tensors: dict[str, Tensor]) -> None:
        """All loops; what they write that is not among the tensors is memory of this call."""
        tensors |= _tensors(inputs)
        calls = [self.values.copy() for _ in range(self.heads.count)]
        if (drop := inputs.drop) is not None:  # heads are counted from the first of the call
            factor, together = self.number(1 / (1 - drop.chance)), self.heads.together
            for at, call in enumerate(calls):
                call["drop"] = (drop.seed + at * together, drop.least, factor)
        for name, layout in self.layouts.items():
            x = tensors.get(name)
            numbers = np.empty(layout.size, self.number) if x is None else layout.numbers(x)
            for call, place in zip(calls, layout.places, strict=True):
                call[name] = (numbers, *place)
        for function, arguments, ptr in self.loops:
            spread(function, [arguments(call) for call in calls], ptr, numbers=self.work)

    def cast(self, x: Tensor) -> Tensor:
        return x if self.dtype == self.kind else x.to(self.dtype)


class Forward(_Pass):
    """`out` and the log-sum-exp."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.write("out", self.index.rows.results, self.dv)
        self.write("lse", self.index.rows.results, 1)
        self.write("weights", self.index.edges, 1)
        self.add(
            "weigh",
            "rows in_order forward q k vector edge_bias edge_scale edge_key drop sizes lse weights "
            "plain",
        )
        if self.dv:
            self.add("pull", "rows in_order in_order v edge_value value_size weights out none")

    def __call__(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        out, lse = self.layouts["out"].empty(), self.layouts["lse"].empty()
        self.run(inputs, {"out": out, "lse": lse})
        sums, found = self.index.rows.merged(lse[..., 0], out)
        return self.cast(found), sums


class Backward(_Pass):
    """Weights are computed again, along columns, and gradients take their places."""

    def __init__(self, inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor) -> None:
        super().__init__(inputs)
        index, kind, terms = self.index, inputs.kind, inputs.terms.keys()
        self.read("out", out, ordered=False)
        self.read("lse", lse)
        self.read("dout", dout)
        self.write("delta", inputs.q.shape[2], 1)
        self.write("weights", index.edges, 1)
        self.write("d.q", index.rows.results, self.d)
        self.write("d.k", index.columns.results, self.d, shared=True)
        self.write("d.v", index.columns.results, self.dv, shared=True)
        numbers = [name for name in NUMBERS if name in terms]
        for name in (f"{order}{x}" for x in numbers for order in ("columns.", "columns.d.", "d.")):
            self.write(name, index.edges, 1)
        for name in terms - set(NUMBERS):
            self.write(f"d.{name}", index.edges, inputs.terms[name].shape[-1], shared=True)
        if "edge_scale" in terms:
            self.write("plain", index.edges, 1)
        if kind == 2:
            self.write("d.vector", index.rows.results, self.d, shared=True)
        self.add("row_dots", "value_size dout out delta", index.rows.ptr.numpy())
        for name in numbers:
            self.add("take", f"columns edge heads {name} columns.{name}")
        self.add(
            "weigh",
            "columns edge backward k q vector columns.edge_bias columns.edge_scale edge_key drop "
            "sizes lse weights plain",
        )
        if kind != 1 and inputs.drop is None and not terms & {"edge_scale", "edge_value"}:
            self.add("push", "columns v dout delta sizes scale weights d.v columns.d.edge_bias")
        else:
            self.add(
                "push_terms",
                "columns edge backward q k v dout delta columns.edge_scale edge_value plain drop "
                "sizes weights d.k d.v columns.d.edge_bias columns.d.edge_scale d.edge_value",
            )
        for name in numbers:
            self.add("take", f"rows turn heads columns.d.{name} d.{name}")
        if kind == 0 and self.d:  # where scores are known, queries and keys have no features
            self.add("pull", "columns in_order edge q none key_size weights d.k d.edge_key")
            self.add("pull", "rows turn in_order k edge_key key_size weights d.q none")
        elif kind == 1:
            self.add("totals", "rows turn heads weights d.q")
        elif kind == 2:
            self.add("pull_slopes", "columns in_order slope k q vector key_size weights d.k none")
            self.add("pull_slopes", "rows turn slope q k vector key_size weights d.q d.vector")
        self.results = [name for name in self.layouts if name.startswith("d.")]

    def __call__(self, inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor) -> EdgeGrads:
        found = {name: self.layouts[name].empty() for name in self.results}
        for name in ("d.edge_key", "d.edge_value"):
            if name in found:
                found[name].zero_()  # queries that share a key add to it
        self.run(inputs, {"out": out, "lse": lse, "dout": dout, **found})
        rows, columns = self.index.rows, self.index.columns
        dq, dk, dv = rows.summed(found["d.q"]), columns.summed(found["d.k"]), found["d.v"]
        dvector, terms = None, {}
        if inputs.vector is not None:
            dvector = self.cast(rows.summed(found["d.vector"]).sum(1, keepdim=True))
        for name, x in inputs.terms.items():
            grad = found[f"d.{name}"].to(x.dtype)
            terms[name] = grad[..., 0] if name in NUMBERS else grad
        cast = self.cast
        return EdgeGrads(cast(dq), cast(dk), cast(columns.summed(dv)), dvector, terms)


class Products(_Pass):
    """scale · q_i·(k_j + key_e) of each edge: (b, g, e)."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.write("products", self.index.edges, 1)
        self.add("products", "rows q k edge_key sizes scale products")

    def __call__(self, inputs: Inputs) -> Tensor:
        found = self.layouts["products"].empty()
        self.run(inputs, {"products": found})
        return found[..., 0]


class ProductsBackward(_Pass):
    """dq, dk and the gradient of the edges' keys."""

    def __init__(self, inputs: Inputs, grad: Tensor) -> None:
        super().__init__(inputs)
        self.read("weights", grad)
        self.write("d.q", self.index.rows.results, self.d)
        self.write("d.k", self.index.columns.results, self.d, shared=True)
        if "edge_key" in inputs.terms:
            self.write("d.edge_key", self.index.edges, self.d, shared=True)
        self.add("pull", "rows in_order in_order k edge_key key_size weights d.q none")
        self.add("pull", "columns edge edge q none key_size weights d.k d.edge_key")
        self.results = [name for name in self.layouts if name.startswith("d.")]

    def __call__(self, inputs: Inputs, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        found = {name: self.layouts[name].empty() for name in self.results}
        if (dkey := found.get("d.edge_key")) is not None:
            dkey.zero_()
        self.run(inputs, {"weights": grad, **found})
        return self.index.rows.summed(found["d.q"]), self.index.columns.summed(found["d.k"]), dkey


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = _prepared(Forward, inputs)(inputs)
    return found


def backward(inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor) -> EdgeGrads:
    tensors = (out, lse[..., None], dout)
    found: EdgeGrads = _prepared(Backward, inputs, *tensors)(inputs, *tensors)
    return found


def products(inputs: Inputs) -> Tensor:
    found: Tensor = _prepared(Products, inputs)(inputs)
    return found


def products_backward(inputs: Inputs, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    grad = (grad * inputs.scale)[..., None]
    found: tuple[Tensor, Tensor, Tensor | None] = _prepared(ProductsBackward, inputs, grad)(
        inputs, grad
    )
    return found


def _prepared(kind: Any, inputs: Inputs, *more: Tensor) -> Any:
    """The pass for tensors with these shapes and strides."""
    tensors, known = _tensors(inputs), inputs.index.prepared
    listed = [(x.shape, x.stride(), x.dtype) for x in (*tensors.values(), *more)]
    key = (kind, inputs.scale, inputs.slope, inputs.drop is None, *tensors, *listed)
    found = known.get(key)
    if found is None:
        if len(known) >= MOST:
            known.clear()
        found = known[key] = kind(inputs, *more)
    return found


def _tensors(inputs: Inputs) -> dict[str, Tensor]:
    """Those of inputs; numbers of edges are (b, g, e, 1)."""
    found = {"q": inputs.q, "k": inputs.k, "v": inputs.v}
    if inputs.vector is not None:
        found["vector"] = inputs.vector
    for name, x in inputs.terms.items():
        found[name] = x[..., None] if name in NUMBERS else x
    return found


def _like(x: Tensor) -> Tensor:
    """Its shape, strides and precision, without numbers."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


@lru_cache
def loop(name: str) -> Callable[..., None]:
    from edgewise.kernels.edges import numba_loops

    found: Callable[..., None] = getattr(numba_loops, name)
    return found
