"""Random calls of attention with vectors on edges, and the comparison with float64."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from edgewise.kernels.edges import EdgeIndex, edge_index, relational
from edgewise.kernels.edges.relational_operator import relate

NAMES = ("q", "k", "v", "x", "a", "b", "bias")


@dataclass(frozen=True)
class Call:
    """`hub` edges more are those of segment 0 and of row 0; `own` vectors are one of each head."""

    queries: bool = True
    keys: bool = False
    values: bool = True
    bias: bool = False
    own: bool = False
    batch: int = 1
    n: int = 5
    m: int = 7
    h: int = 3
    entries: int = 20
    d: int = 3
    dv: int = 4
    w: int = 2
    hub: int = 0
    dtype: torch.dtype = torch.float32
    dropout: float = 0.0
    views: bool = False  # heads first in memory, or parts of longer rows

    def index(self) -> EdgeIndex:
        random = torch.Generator().manual_seed(self.entries + 31 * self.hub)
        some = self.entries if self.n and self.m else 0
        i = torch.randint(max(self.n, 1), (some,), generator=random)
        j = torch.randint(max(self.m, 1), (some,), generator=random)
        if some:
            lot = torch.arange(self.hub)
            i, j = torch.cat([i, 0 * lot, lot % self.n]), torch.cat([j, lot % self.m, 0 * lot])
        order = i.argsort(stable=True)
        return edge_index(i[order], j[order], self.n, self.m)

    def leaves(self, dtype: torch.dtype) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(1)
        rows, columns, edges = (self.n, self.h), (self.m, self.h), self.index().edges
        shapes = {
            "q": (*rows, self.d),
            "k": (*columns, self.d),
            "v": (*columns, self.dv),
            "x": (edges, self.h if self.own else 1, self.w),
            "a": (*rows, self.w) if self.queries else None,
            "b": (*columns, self.w) if self.keys else None,
            "bias": (edges, self.h) if self.bias else None,
        }
        return {
            name: torch.randn(self.batch, *shape, generator=random)
            .to(self.dtype)
            .to(dtype)
            .requires_grad_()
            for name, shape in shapes.items()
            if shape is not None
        }

    def inputs(self, leaves: dict[str, Tensor]) -> tuple[object, ...]:
        """As operators take them, without the index."""
        seed = torch.tensor(7) if self.dropout else None
        found = {n: _view(n, x) if self.views else x for n, x in leaves.items()}
        return *(found.get(name) for name in NAMES), seed, self.values, self.dropout

    def grad(self, dtype: torch.dtype) -> Tensor:
        width = self.h * (self.dv + self.w * self.values)
        random = torch.Generator().manual_seed(2)
        return torch.randn(self.batch, self.n, width, generator=random).to(dtype)


def _view(name: str, x: Tensor) -> Tensor:
    """The same numbers elsewhere in memory."""
    if name in "ab":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    return torch.cat([x, x], -1)[..., : x.shape[-1]] if name in "qkv" else x


sizes = st.sampled_from([0, 1, 2, 5, 17])
calls = st.builds(
    Call,
    *[st.booleans()] * 5,
    batch=st.integers(1, 2),
    n=sizes,
    m=sizes,
    h=st.integers(1, 4),
    entries=st.sampled_from([0, 1, 7, 60]),
    d=st.sampled_from([0, 1, 3, 16]),
    dv=st.sampled_from([0, 1, 3, 16]),
    w=st.sampled_from([1, 2, 9, 16]),
    hub=st.sampled_from([0, 600]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    dropout=st.sampled_from([0.0, 0.4]),
    views=st.booleans(),
)


def results(call: Call, dtype: torch.dtype, operations=None) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The output and the gradients of all inputs, as float64."""
    leaves, index = call.leaves(dtype), call.index()
    inputs = call.inputs(leaves)
    if operations is None:
        out = relate(*inputs, index=index)[0]
        grads = torch.autograd.grad((out * call.grad(dtype)).sum(), list(leaves.values()))
    else:
        with torch.no_grad():
            out, lse = operations["relational_attention"](*inputs, index)
            backward = operations["relational_attention_backward"]
            found = backward(call.grad(dtype), out, lse, *inputs, index)
            grads = [x for name, x in zip(NAMES, found, strict=True) if name in leaves]
    return [x.detach().double() for x in (out, *grads)]


def plain(call: Call) -> list[Tensor]:
    """The same by autograd in float64, every edge written out; nothing is dropped."""
    leaves, index = call.leaves(torch.float64), call.index()
    q, k, v, x = (leaves[name] for name in "qkvx")
    i, j = index.rows.ids.long(), index.rows.index.long()
    score = (q[:, i] * k[:, j]).sum(-1) + leaves.get("bias", torch.zeros(()))
    for name, at in (("a", i), ("b", j)):
        if name in leaves:
            score = score + (leaves[name][:, at] * x).sum(-1)
    pairs = (torch.arange(call.n)[:, None] == i)[..., None]
    weights = torch.where(pairs, score[:, None], -torch.inf).softmax(2).nan_to_num()
    vectors = x.expand(-1, -1, call.h, -1)
    parts = [v[:, j], vectors] if call.values else [v[:, j]]
    out = torch.cat([torch.einsum("cneh,cehd->cnhd", weights, p).flatten(2) for p in parts], -1)
    loss = (out * call.grad(torch.float64)).sum() + sum(0.0 * t.sum() for t in leaves.values())
    return [t.detach() for t in (out, *torch.autograd.grad(loss, list(leaves.values())))]


def assert_no_worse_than_reference(call: Call, operations=None) -> None:  # type: ignore[no-untyped-def]
    """No further from float64 than the reference in the same precision, and some rounding."""
    exact = results(call, torch.float64, relational.OPERATIONS)
    simple = results(call, call.dtype, relational.OPERATIONS)
    for right, other, mine in zip(
        exact, simple, results(call, call.dtype, operations), strict=True
    ):
        assert mine.shape == right.shape
        if not right.numel():
            continue
        size = 1 + right.abs().max().item()
        terms = call.d + call.dv + 3 * call.w
        terms += call.entries + 2 * call.hub if call.dtype.itemsize > 2 else 0
        rounding = (8 + terms) * torch.finfo(call.dtype).eps * size
        off, simply = ((x - right).abs().max().item() for x in (mine, other))
        assert off <= 2 * simply + rounding
