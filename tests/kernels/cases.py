"""Random calls of attention, and the comparison with float64."""

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from edgewise.graphs import (
    Pattern,
    blocks,
    causal,
    dilated,
    fixed,
    full,
    global_tokens,
    prefix,
    strided,
    window,
)
from edgewise.kernels.attention import attention

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


@dataclass(frozen=True)
class Call:
    graph: Pattern
    batch: tuple[int, ...] = (2,)
    heads: int = 2
    shared: int = 1
    n: int = 8
    m: int = 8
    d: int = 4
    dv: int = 4
    dtype: torch.dtype = torch.float32
    edge_bias: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def tensors(self, seed: int = 0) -> list[Tensor]:
        random = torch.Generator().manual_seed(seed)
        shapes = [
            (*self.batch, self.heads * self.shared, self.n, self.d),
            (*self.batch, self.heads, self.m, self.d),
            (*self.batch, self.heads, self.m, self.dv),
        ]
        if self.edge_bias:
            shapes.append((self.heads * self.shared, self.graph.count(self.n, self.m)))
        return [torch.randn(shape, generator=random).to(self.dtype) for shape in shapes]


@st.composite
def calls(draw: st.DrawFn, graph: st.SearchStrategy[Pattern] = graphs) -> Call:
    n = draw(sizes)
    return Call(
        draw(graph),
        draw(st.sampled_from([(), (1,), (2,), (0,), (2, 1)])),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        n,
        draw(st.one_of(st.just(n), sizes)),
        draw(st.sampled_from([1, 4, 8])),
        draw(st.sampled_from([1, 4, 8])),
        draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])),
        draw(st.booleans()),
    )


def results(call: Call, kernel: str | None, dtype: torch.dtype) -> list[Tensor]:
    """The output, the log-sum-exp and all gradients, computed in `dtype`, as float64."""
    tensors = [x.to(dtype).requires_grad_() for x in call.tensors()]
    options = dict(call.options)
    if call.edge_bias:
        options["edge_bias"] = tensors[3]
    out, lse = attention(*tensors[:3], call.graph, kernel=kernel, return_lse=True, **options)
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(out.shape, generator=random).to(dtype)
    also = torch.randn(lse.shape, generator=random).to(lse.dtype)
    total = (out * weight).sum() + (torch.where(lse == -torch.inf, 0, lse) * also).sum()
    grads = torch.autograd.grad(total, tensors)
    return [x.detach().double() for x in (out, lse, *grads)]


def assert_no_worse_than_reference(call: Call, kernel: str | None) -> None:
    """The error against float64 is at most the plain reference's in the same precision, and as
    much rounding as the sums of this size bring."""
    exact = results(call, "reference", torch.float64)
    plain = results(call, "reference", call.dtype)
    ours = results(call, kernel, call.dtype)
    for right, simple, mine in zip(exact, plain, ours, strict=True):
        assert torch.equal(right == -torch.inf, mine == -torch.inf)
        size = 1 + right.nan_to_num(neginf=0).abs().max().item() if right.numel() else 1.0
        # float64 has no finer reference: sums of n terms may differ in their last digits
        terms = max(call.n, call.m, call.d) if call.dtype == torch.float64 else 0
        rounding = (8 + terms) * torch.finfo(call.dtype).eps * size
        assert distance(mine, right) <= 2 * distance(simple, right) + rounding


def distance(a: Tensor, b: Tensor) -> float:
    same = a == b  # also where both are -∞
    return torch.where(same, 0, a - b).abs().max().item() if a.numel() else 0.0
