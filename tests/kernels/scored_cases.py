"""Random calls of scored attention, and the comparison with float64."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from edgewise.kernels.edges import EdgeIndex, edge_index
from edgewise.kernels.scored import KINDS, scored
from edgewise.kernels.scored.contract import Inputs
from edgewise.kernels.scored.reference import backward, forward


@dataclass(frozen=True)
class Call:
    kind: str = "additive"
    b: int = 2
    n: int = 5
    m: int = 7
    entries: int = 20
    d: int = 3
    dv: int = 4
    hub: int = 0
    dtype: torch.dtype = torch.float32
    dropped: bool = False
    beside: bool = False  # whether the heads of a row lie side by side

    def which(self) -> EdgeIndex:
        random = torch.Generator().manual_seed(self.entries + 31 * self.hub)
        some = self.entries if self.n and self.m else 0
        i = torch.randint(max(self.n, 1), (some,), generator=random)
        j = torch.randint(max(self.m, 1), (some,), generator=random)
        if some:
            lot = torch.arange(self.hub)
            i, j = torch.cat([i, 0 * lot, lot % self.n]), torch.cat([j, lot % self.m, 0 * lot])
        order = i.argsort(stable=True)
        return edge_index(i[order], j[order], self.n, self.m)

    def inputs(self, dtype: torch.dtype) -> Inputs:
        random = torch.Generator().manual_seed(1)
        e = self.which().edges
        d = {"given": 0, "additive": 1}.get(self.kind, self.d)
        shapes = {"given": (self.b, e, 1), "of sums": (self.b, 1, d)}
        shapes |= {"multiplicative": (self.b, e, d)}
        drawn = [
            torch.randn(shape, generator=random).to(self.dtype)
            for shape in ((self.b, self.n, d), (self.b, self.m, d), (self.b, self.m, self.dv))
        ]
        t = shapes.get(self.kind)
        t = None if t is None else torch.randn(t, generator=random).to(self.dtype)
        keep = (torch.rand(self.b, e, generator=random) < 0.6).to(self.dtype) / 0.6
        if self.beside:
            drawn = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in drawn]
        leaves = [None if x is None else x.to(dtype).requires_grad_() for x in (*drawn, t)]
        return Inputs(self.kind, 0.2, *leaves, keep.to(dtype) if self.dropped else None)


sizes = st.sampled_from([0, 1, 2, 5, 17])
calls = st.builds(
    Call,
    st.sampled_from(KINDS),
    st.integers(1, 3),
    sizes,
    sizes,
    st.sampled_from([0, 1, 7, 60]),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([1, 3, 16]),
    st.sampled_from([0, 600]),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    st.booleans(),
    st.booleans(),
)


def leaves(given: Inputs) -> list[Tensor]:
    return [x for x in (given.q, given.k, given.v, given.t) if x is not None]


def results(call: Call, dtype: torch.dtype, kernel=None) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The output and the gradients of q, k, v and t, as float64."""
    given, which = call.inputs(dtype), call.which()
    random = torch.Generator().manual_seed(2)
    weight = torch.randn(call.b, call.n, call.dv, generator=random).to(dtype)
    if kernel is None:
        options = {"t": given.t, "slope": given.slope, "keep": given.keep}
        out = scored(given.kind, given.q, given.k, given.v, which, **options)
        grads = torch.autograd.grad((out * weight).sum(), leaves(given))
    else:
        forth = kernel.forward(given, which)
        out, found = forth.out, kernel.backward(given, forth, weight, which)
        grads = [x for x in (found.q, found.k, found.v, found.t) if x is not None]
    return [x.detach().double() for x in (out, *grads)]


class plain:
    """The reference, as a kernel."""

    forward, backward = staticmethod(forward), staticmethod(backward)


def assert_no_worse_than_reference(call: Call, kernel=None) -> None:  # type: ignore[no-untyped-def]
    """No further from float64 than the reference in the same precision, and some rounding."""
    exact = results(call, torch.float64, plain)
    simple, ours = results(call, call.dtype, plain), results(call, call.dtype, kernel)
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
