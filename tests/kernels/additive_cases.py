"""Random calls of additive attention, and the comparison with float64."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from edgewise.kernels.edges import EdgeIndex, edge_index, reference
from edgewise.kernels.edges.attention import additive_operations
from edgewise.kernels.edges.operators import attend_along

REFERENCE = additive_operations(reference)


@dataclass(frozen=True)
class Call:
    """GAT, and with a `vector` GATv2; `hub` edges more are those of segment 0 and of row 0."""

    vector: bool = False
    b: int = 2
    n: int = 5
    m: int = 7
    entries: int = 20
    d: int = 3
    dv: int = 4
    hub: int = 0
    dtype: torch.dtype = torch.float32
    dropout: float = 0.0
    beside: bool = False  # whether the heads of a row lie side by side

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

    def leaves(self, dtype: torch.dtype) -> list[Tensor]:
        """q, k, v and the vector if there is one."""
        random = torch.Generator().manual_seed(1)
        d = self.d if self.vector else 1
        shapes = [(self.b, self.n, d), (self.b, self.m, d), (self.b, self.m, self.dv)]
        drawn = [torch.randn(shape, generator=random).to(self.dtype) for shape in shapes]
        if self.beside:
            drawn = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in drawn]
        if self.vector:
            drawn.append(torch.randn(self.b, 1, d, generator=random).to(self.dtype))
        return [x.to(dtype).requires_grad_() for x in drawn]

    def inputs(self, leaves: list[Tensor]) -> tuple[object, ...]:
        """As operators take them, without the index."""
        q, k, v, *vector = leaves
        seed = torch.tensor(7) if self.dropout else None
        return q, k, v, vector[0] if vector else None, seed, 0.2, self.dropout


sizes = st.sampled_from([0, 1, 2, 5, 17])
calls = st.builds(
    Call,
    st.booleans(),
    st.integers(1, 3),
    sizes,
    sizes,
    st.sampled_from([0, 1, 7, 60]),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([1, 3, 16]),
    st.sampled_from([0, 600]),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    st.sampled_from([0.0, 0.4]),
    st.booleans(),
)


def results(call: Call, dtype: torch.dtype, operations=None) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The output and the gradients of q, k, v and the vector, as float64."""
    leaves, index = call.leaves(dtype), call.index()
    random = torch.Generator().manual_seed(2)
    weight = torch.randn(call.b, call.n, call.dv, generator=random).to(dtype)
    inputs = call.inputs(leaves)
    if operations is None:
        out = attend_along(*inputs, index=index)[0]
        grads = torch.autograd.grad((out * weight).sum(), leaves)
    else:
        with torch.no_grad():
            found = operations["additive_attention"](*inputs, index)
            backward = operations["additive_attention_backward"]
            out, grads = found[0], backward(weight, *found, *inputs, index)[: len(leaves)]
    return [x.detach().double() for x in (out, *grads)]


def plain(call: Call, dtype: torch.dtype) -> list[Tensor]:
    """The same by autograd, every edge written out; nothing is dropped."""
    leaves, index = call.leaves(dtype), call.index()
    q, k, v, *vector = leaves
    i, j = index.rows.ids.long(), index.rows.index.long()
    z = torch.nn.functional.leaky_relu(q[:, i] + k[:, j], 0.2)
    score = (z * vector[0]).sum(-1) if vector else z[..., 0]
    pairs = torch.arange(call.n)[:, None] == i
    weights = torch.where(pairs, score[:, None], -torch.inf).softmax(-1).nan_to_num()
    out = weights @ v[:, j]
    random = torch.Generator().manual_seed(2)
    weight = torch.randn(call.b, call.n, call.dv, generator=random).to(dtype)
    grads = torch.autograd.grad((out * weight).sum(), leaves)
    return [x.detach().double() for x in (out, *grads)]


def assert_no_worse_than_reference(call: Call, operations=None) -> None:  # type: ignore[no-untyped-def]
    """No further from float64 than the reference in the same precision, and some rounding."""
    exact = results(call, torch.float64, REFERENCE)
    simple, ours = results(call, call.dtype, REFERENCE), results(call, call.dtype, operations)
    for right, other, mine in zip(exact, simple, ours, strict=True):
        size = 1 + right.abs().max().item() if right.numel() else 1.0
        # ds = p (g·v - g·out): sums of dv terms that may cancel, and p of a sum of d terms
        terms = call.d + call.dv
        terms += call.entries + 2 * call.hub if call.dtype.itemsize > 2 else 0
        rounding = (8 + terms) * torch.finfo(call.dtype).eps * size
        assert distance(mine, right) <= 2 * distance(other, right) + rounding


def distance(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item() if a.numel() else 0.0


KINDS = {"GAT": Call(), "GATv2": replace(Call(), vector=True)}
