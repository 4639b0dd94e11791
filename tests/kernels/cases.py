"""Random calls of attention, and the comparison with float64."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from edgewise.graphs import (
    Pattern,
    bigbird,
    blocks,
    causal,
    dilated,
    documents,
    fixed,
    from_edges,
    full,
    global_tokens,
    prefix,
    random_edges,
    strided,
    tree,
    window,
)
from edgewise.ground.masks.pattern import tested
from edgewise.kernels.attention import attention
from edgewise.layouts.bitmap import SLAB, Bitmap
from edgewise.scores import H, I, J, S, relative, scalar, softcap, sqrt, tanh, where
from edgewise.scores import table as table_of

radii = st.integers(0, 6)
simple = st.one_of(
    st.just(full()),
    st.just(causal()),
    radii.map(window),
    st.builds(dilated, radii, st.integers(1, 3)),
    st.integers(1, 5).map(strided),
    st.integers(1, 5).map(fixed),
    st.integers(0, 3).map(global_tokens),
    st.integers(1, 9).map(blocks),
    radii.map(prefix),
)
graphs: st.SearchStrategy[Pattern] = st.one_of(
    simple,
    st.builds(lambda a, b: a | b, simple, simple),
    st.builds(lambda a, b: a & b, simple, simple),
    st.builds(lambda a, b: a - b, simple, simple),
)
sizes = st.sampled_from([0, 1, 2, 3, 7, 33, 40, 65])


SCORES = {  # of a table per head (heads, 7) and one number per head
    "softcap": lambda table, one: softcap(2.0),
    "near": lambda table, one: S - sqrt(abs(I - J)),  # places, and no table
    "alibi": lambda table, one: S - scalar(one) * abs(I - J),
    "relative": lambda table, one: S + relative(table),
    "apart": lambda table, one: S * scalar(one) + table_of(table, abs(I * 3 - J * 3)),
    "capped": lambda table, one: (S + relative(table)).at(softcap(3.0)) * scalar(one),
    "places": lambda table, one: where(I > J + 2, S * 0.5 + H, S) + tanh(table_of(table, J)),
}
PER_EDGE = ("edge_bias", "edge_scale", "edge_key", "edge_value")
SUMMED = ("dtable", "done", "dkey_bias")  # gradients that are sums over many pairs
TERMS = ("bias", "key_bias", *PER_EDGE, *SCORES)


@dataclass(frozen=True)
class Call:
    """`terms` are names of options, or of scores."""

    graph: Pattern
    batch: tuple[int, ...] = (2,)
    heads: int = 2
    shared: int = 1
    n: int = 8
    m: int = 8
    d: int = 4
    dv: int = 4
    dtype: torch.dtype = torch.float32
    terms: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def tensors(self, seed: int = 0) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)
        query, e = self.heads * self.shared, self.pairs
        shapes = {
            "q": (*self.batch, query, self.n, self.d),
            "k": (*self.batch, self.heads, self.m, self.d),
            "v": (*self.batch, self.heads, self.m, self.dv),
            "bias": (*self.batch, query, self.n, self.m),
            "key_bias": (query, 1, self.m),
            "edge_bias": (query, e),
            "edge_scale": (*self.batch, query, e),
            "edge_key": (self.heads, e, self.d),
            "edge_value": (*self.batch, self.heads, e, self.dv),
            "table": (query, 7),
            "one": (query,),
        }
        names = ["q", "k", "v", *(name for name in self.terms if name not in SCORES)]
        names += ["table", "one"] if set(self.terms) & set(SCORES) else []
        return {x: torch.randn(shapes[x], generator=random).to(self.dtype) for x in names}

    @property
    def pairs(self) -> int:
        shift = self.options.get("offset", 0)
        graph = self.graph.shift(-shift, 0) if shift else self.graph
        return graph.count(self.n, self.m)

    def run(self, tensors: dict[str, Tensor], kernel: str | None, **more: Any) -> Any:
        """The call itself, on these numbers; what dropout drops is the same each time."""
        given = {name: tensors[name] for name in self.terms if name in tensors}
        if "key_bias" in given:
            given["bias"] = given.pop("key_bias")
        for name in self.terms:
            if name in SCORES:
                given["score"] = SCORES[name](tensors["table"], tensors["one"])
        torch.manual_seed(5)
        q, k, v = (tensors[name] for name in "qkv")
        return attention(q, k, v, self.graph, kernel=kernel, **given, **self.options, **more)


@st.composite
def calls(
    draw: st.DrawFn,
    graph: st.SearchStrategy[Pattern] = graphs,
    terms: tuple[str, ...] = TERMS,
) -> Call:
    n = draw(sizes)
    m = draw(st.one_of(st.just(n), sizes))
    batch = draw(st.sampled_from([(), (1,), (2,), (0,), (2, 1)]))
    chosen = draw(st.lists(st.sampled_from(terms), max_size=3, unique=True)) if terms else []
    if "bias" in chosen and "key_bias" in chosen:
        chosen.remove("key_bias")
    scores = [name for name in chosen if name in SCORES]
    chosen = [name for name in chosen if name not in scores[1:]]
    options: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        options["dropout"] = 0.3
    if draw(st.integers(0, 3)) == 0:
        count = math.prod(batch)
        each = draw(st.lists(st.integers(0, m), min_size=count, max_size=count))
        options["lengths"] = torch.tensor(each, dtype=torch.int64).view(batch)
    if draw(st.integers(0, 5)) == 0:
        options["offset"] = draw(st.integers(0, 5))
    if draw(st.integers(0, 5)) == 0:
        options["scale"] = draw(st.sampled_from([-0.7, 0.0, 2.0]))
    return Call(
        draw(graph),
        batch,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        n,
        m,
        draw(st.sampled_from([1, 4, 8])),
        draw(st.sampled_from([1, 4, 8])),
        draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])),
        tuple(chosen),
        options,
    )


def results(call: Call, kernel: str | None, dtype: torch.dtype) -> dict[str, Tensor]:
    """The output, the log-sum-exp, the weights and all gradients, computed in `dtype`."""
    tensors = {name: x.to(dtype).requires_grad_() for name, x in call.tensors().items()}
    out, lse, weights = call.run(tensors, kernel, return_lse=True, return_weights=True)
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(out.shape, generator=random).to(dtype)
    also = torch.randn(lse.shape, generator=random).to(lse.dtype)
    total = (out * weight).sum() + (torch.where(lse == -torch.inf, 0, lse) * also).sum()
    grads = torch.autograd.grad(total, list(tensors.values()), materialize_grads=True)
    found = {"out": out, "lse": lse, "weights": weights}
    found |= {f"d{name}": grad for name, grad in zip(tensors, grads, strict=True)}
    return {name: x.detach().double() for name, x in found.items()}


def assert_no_worse_than_reference(call: Call, kernel: str | None) -> None:
    """The error against float64 is at most the plain reference's in the same precision, and as
    much rounding as the sums of this size bring."""
    exact = results(call, "reference", torch.float64)
    plain = results(call, "reference", call.dtype)
    ours = results(call, kernel, call.dtype)
    for name, right in exact.items():
        mine, simple = ours[name], plain[name]
        assert torch.equal(right == -torch.inf, mine == -torch.inf), name
        size = 1 + right.nan_to_num(neginf=0).abs().max().item() if right.numel() else 1.0
        # float64 has no finer reference: sums over all pairs may differ in their last digits
        pairs = call.n * call.m
        exact_ = call.dtype == torch.float64
        terms = pairs + call.d if exact_ else math.sqrt(pairs) if name in SUMMED else 0
        if name == "done" and exact_:  # the gradient of a slope sums distances, up to m
            terms *= call.m
        rounding = (8 + terms) * torch.finfo(call.dtype).eps * size
        assert distance(mine, right) <= 2 * distance(simple, right) + rounding, name


def distance(a: Tensor, b: Tensor) -> float:
    same = a == b  # also where both are -∞
    return torch.where(same, 0, a - b).abs().max().item() if a.numel() else 0.0


NAN_GRAPHS = (
    *(None, full(), causal(), window(2), window(2).restrict(queries=(0, 5)), dilated(2, 4)),
    *(strided(3), bigbird(2, 1), tree([-1, 0, 0, 1, 1, 2, 2, 3]), documents([4, 4])),
    random_edges(3, seed=0),
    from_edges(torch.tensor([[0, 1, 1, 3, 3, 7], [4, 0, 1, 3, 6, 7]])),
    window(1) | global_tokens(1) | random_edges(2, seed=1),
)


def nan_rows(graph: Pattern | None, kernel: str | None, value: float, term: str) -> None:
    """Row 3 of 8, or the bias of its first edge, is not a number: its output and log-sum-exp are
    none either, nor the gradients that meet it; all else is finite."""
    n, row = 8, 3
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 8, generator=random) for _ in range(3))
    i, j = (full() if graph is None else graph).edges(n)
    more = {}
    if term == "q":
        q[:, :, row] = value
    else:
        more["edge_bias"] = torch.zeros(2, len(i))
        more["edge_bias"][:, (i == row).nonzero()[0]] = value
    for x in (q, k, v):
        x.requires_grad_()
    out, lse = attention(q, k, v, graph, kernel=kernel, return_lse=True, **more)
    alone = attention(q, k, v, graph, kernel=kernel, **more)
    for found in (out, alone):
        assert found.isnan().any(-1)[0].nonzero().tolist() == [[0, row], [1, row]]
        assert found[:, :, [x for x in range(n) if x not in i]].eq(0).all()
    assert not lse[:, :, row].isfinite().any()
    alone.sum().backward()
    assert q.grad is not None
    assert v.grad is not None
    assert q.grad.isnan().any(-1)[0].nonzero().tolist() == [[0, row], [1, row]]
    assert v.grad[:, :, j[i == row]].isnan().all()


def minus_infinite_row(graph: Pattern | None, kernel: str | None, term: str) -> None:
    """All scores of row 3 of 8 are -∞: as a row without keys, it gives 0 and no gradient."""
    n, row = 8, 3
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 8, generator=random, requires_grad=True) for _ in range(3))
    i, _ = (full() if graph is None else graph).edges(n)
    bias = torch.zeros(1, 2, n, n) if term == "bias" else torch.zeros(2, len(i))
    bias[(..., row, slice(None)) if term == "bias" else (..., i == row)] = -torch.inf
    bias.requires_grad_()
    more = {term: bias}
    out, lse = attention(q, k, v, graph, kernel=kernel, return_lse=True, **more)
    alone = attention(q, k, v, graph, kernel=kernel, **more)
    for found in (out, alone):
        assert found[:, :, row].eq(0).all()
        assert found.isfinite().all()
    assert lse[:, :, row].eq(-torch.inf).all()
    grads = torch.autograd.grad(alone.square().sum(), (q, k, v, bias))
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[0][:, :, row].eq(0).all()


def irregular(n, m):
    """Pairs without an order as bits: a block of 64 without any, one with all, an empty row."""
    mask = torch.rand(n, m, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[:64, :64], mask[64:128, :64], mask[5] = False, True, False
    blocks = (-(-n // SLAB), -(-m // SLAB))
    found = mask.numpy()
    return tested(
        Bitmap(
            n, m, lambda first, last, keys: found[first:last, keys],
            np.ones(blocks, bool), np.zeros(blocks, bool),
        )
    )  # fmt: skip
