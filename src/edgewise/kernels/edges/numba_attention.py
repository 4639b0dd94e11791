"""Attention along edges on a CPU: loops over rows, and for gradients over columns.

Shapes and strides decide how loops read tensors, so a pass is prepared once for them and cached
with the index: a repeated call allocates its results and runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.edges.attention import TERMS, EdgeGrads, Inputs
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.numba_layout import FlatLayout, heads_of, ready
from edgewise.kernels.threads import spread

NUMBERS = ("edge_bias", "edge_scale")  # of edges and heads; other terms are vectors
NARROW = 32  # numbers in a row of one head, below which heads are put side by side
SUMMED = ("d.edge_key", "d.edge_value")  # over the queries that share a key
MOST = 64  # prepared passes of one index


class _Pass:
    """Loops over the edges, for tensors with the shapes and strides of `inputs`.

    `values` are the arguments of loops by name. Those of a tensor are its rows, and differ from
    call to call; `d.x` is the gradient of x, and `columns.x` are numbers of edges by columns.
    """

    reads: tuple[str, ...] = ()  # beside the inputs
    results: tuple[str, ...] = ()

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
        self.heads, self.count, self.d, self.dv = heads, heads.count, q.shape[-1], v.shape[-1]
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

    def finish(self, inputs: Inputs, found: dict[str, Tensor]) -> Any:
        """The results, from the tensors that loops wrote."""
        raise NotImplementedError

    def cast(self, x: Tensor) -> Tensor:
        return x if self.dtype == self.kind else x.to(self.dtype)


class Forward(_Pass):
    """`out` and the log-sum-exp."""

    results = ("out", "lse")

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

    def finish(self, inputs: Inputs, found: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out, lse = found["out"], found["lse"][..., 0]
        if self.index.rows.is_split:
            lse, out = self.index.rows.merged(lse, out)
        return out if self.dtype == self.kind else out.to(self.dtype), lse


class Backward(_Pass):
    """Weights are computed again, along columns, and gradients take their places."""

    reads = ("out", "lse", "dout")

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
        self.results = tuple(name for name in self.layouts if name.startswith("d."))

    def finish(self, inputs: Inputs, found: dict[str, Tensor]) -> EdgeGrads:
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


class EdgeProducts(_Pass):
    """scale · q_i·(k_j + key_e) of each edge: (b, g, e)."""

    results = ("products",)

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.write("products", self.index.edges, 1)
        self.add("products", "rows q k edge_key sizes scale products")

    def finish(self, inputs: Inputs, found: dict[str, Tensor]) -> Tensor:
        return found["products"][..., 0]


class EdgeProductsBackward(_Pass):
    """dq, dk and the gradient of the edges' keys."""

    reads = ("weights",)

    def __init__(self, inputs: Inputs, grad: Tensor) -> None:
        super().__init__(inputs)
        self.read("weights", grad)
        self.write("d.q", self.index.rows.results, self.d)
        self.write("d.k", self.index.columns.results, self.d, shared=True)
        if "edge_key" in inputs.terms:
            self.write("d.edge_key", self.index.edges, self.d, shared=True)
        self.add("pull", "rows in_order in_order k edge_key key_size weights d.q none")
        self.add("pull", "columns edge edge q none key_size weights d.k d.edge_key")
        self.results = tuple(name for name in self.layouts if name.startswith("d."))

    def finish(
        self, inputs: Inputs, found: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        dq, dk = self.index.rows.summed(found["d.q"]), self.index.columns.summed(found["d.k"])
        return dq, dk, found.get("d.edge_key")


def backward(inputs: Inputs, out: Tensor, lse: Tensor, dout: Tensor) -> EdgeGrads:
    found: EdgeGrads = _run(Backward, inputs, out, lse[..., None], dout)
    return found


def products_backward(inputs: Inputs, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    weights = (grad * inputs.scale)[..., None]
    found: tuple[Tensor, Tensor, Tensor | None] = _run(EdgeProductsBackward, inputs, weights)
    return found


def _run(kind: Any, inputs: Inputs, *more: Tensor) -> Any:
    """The results of a pass, which is prepared once for tensors with these shapes and strides.

    One function, since small graphs notice the calls of Python.
    """
    tensors = {"q": inputs.q, "k": inputs.k, "v": inputs.v}
    if inputs.terms or inputs.vector is not None:
        tensors = _tensors(inputs)
    tensors.update(zip(kind.reads, more, strict=True))
    listed = [kind, inputs.scale, inputs.slope, inputs.drop is None]
    for name, x in tensors.items():
        listed += (name, x.shape, x.stride(), x.dtype)
    known, key = inputs.index.prepared, tuple(listed)
    prepared = known.get(key)
    if prepared is None:
        if len(known) >= MOST:
            known.clear()
        prepared = known[key] = kind(inputs, *more)
    number, found = prepared.number, dict[str, Tensor]()
    calls = list(map(dict.copy, [prepared.values] * prepared.count))
    if (drop := inputs.drop) is not None:  # heads are counted from the first of the call
        for at, call in enumerate(calls):
            factor = number(1 / (1 - drop.chance))
            call["drop"] = (drop.seed + at * prepared.heads.together, drop.least, factor)
    for name, (shape, stride, dtype, copied, size, places) in prepared.layouts.items():
        if name in tensors:
            x = tensors[name].detach()
            if copied:
                x = torch.empty_strided(shape, stride, dtype=dtype).copy_(x)
        else:  # a result, or memory of this call
            x = torch.empty_strided(shape, stride, dtype=dtype)
            if name in prepared.results:
                found[name] = x.zero_() if name in SUMMED else x
        flat = x.as_strided((size,), (1,)).numpy()
        for call, place in zip(calls, places, strict=True):
            call[name] = (flat, *place)
    for loop, arguments, ptr in prepared.loops:
        spread(loop, list(map(arguments, calls)), ptr, numbers=prepared.work)
    return prepared.finish(inputs, found)


forward: Callable[[Inputs], tuple[Tensor, Tensor]] = partial(_run, Forward)
products: Callable[[Inputs], Tensor] = partial(_run, EdgeProducts)


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
