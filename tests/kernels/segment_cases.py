"""Random edges, and the comparison of segment reductions with float64."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from edgewise.kernels.edges import (
    EdgeIndex,
    edge_index,
    reference,
    segment_extreme,
    segment_mean,
    segment_sum,
)


@dataclass(frozen=True)
class Call:
    """`hub` entries more belong to segment 0 and read row 0, so that both ways are cut."""

    segments: int = 5
    rows: int = 7
    entries: int = 20
    d: int = 3
    hub: int = 0
    dtype: torch.dtype = torch.float32
    scaled: bool = False

    def which(self) -> EdgeIndex:
        random = torch.Generator().manual_seed(self.entries + 31 * self.hub)
        some = self.entries if self.segments and self.rows else 0
        ids = torch.randint(max(self.segments, 1), (some,), generator=random)
        rows = torch.randint(max(self.rows, 1), (some,), generator=random)
        if some:
            lot = torch.arange(self.hub)
            ids = torch.cat([ids, 0 * lot, lot % self.segments])
            rows = torch.cat([rows, lot % self.rows, 0 * lot])
        order = ids.argsort(stable=True)
        return edge_index(ids[order], rows[order], self.segments, self.rows)

    def tensors(self, dtype: torch.dtype, equal: bool = False) -> list[Tensor]:
        """x, with many equal numbers if `equal`, and a scale if there is one; in `dtype`."""
        random = torch.Generator().manual_seed(1)
        shape = (self.rows, self.d)
        x = torch.randint(-8, 9, shape, generator=random) / 4
        x = (x if equal else torch.randn(shape, generator=random)).to(self.dtype)
        entries = self.which().edges
        scale = torch.randn(entries, generator=random).to(self.dtype)
        return [t.to(dtype).requires_grad_() for t in ((x, scale) if self.scaled else (x,))]


sizes = st.sampled_from([0, 1, 2, 5, 17])
calls = st.builds(
    Call,
    sizes,
    sizes,
    st.sampled_from([0, 1, 7, 60]),
    st.sampled_from([0, 1, 2, 5, 16, 33]),
    st.sampled_from([0, 600]),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)

KINDS = {
    "sum": lambda x, which, *scale: segment_sum(x, which, *scale),
    "mean": lambda x, which: segment_mean(x, which),
    "max": lambda x, which: segment_extreme(x, which, largest=True),
    "min": lambda x, which: segment_extreme(x, which, largest=False),
}


def results(kind: str, call: Call, dtype: torch.dtype) -> list[Tensor]:
    """The output and all gradients, computed in `dtype`, as float64."""
    which, tensors = call.which(), call.tensors(dtype, kind in ("max", "min"))
    out = KINDS[kind](tensors[0], which, *tensors[1:])
    filled = torch.where(out.isinf(), 0, out)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    grads = torch.autograd.grad((filled * weight).sum(), tensors)
    return [t.detach().double() for t in (out, *grads)]


def plain(kind: str, call: Call, dtype: torch.dtype) -> list[Tensor]:
    """The same by torch alone, written out; ties share, as in `amax`."""
    which, (x, *scale) = call.which(), call.tensors(dtype, kind in ("max", "min"))
    ids, count = which.rows.ids.long(), call.segments
    read = x[which.rows.index.long()]
    read = read * scale[0][:, None] if scale else read
    if kind in ("max", "min"):
        start = x.new_full((count, call.d), -torch.inf if kind == "max" else torch.inf)
        out = start.scatter_reduce(0, ids[:, None].expand_as(read), read, f"a{kind}")
    else:
        out = x.new_zeros(count, call.d).index_add(0, ids, read)
        sizes = which.rows.ptr.diff().clamp(min=1)[:, None]
        out = out / sizes.to(dtype) if kind == "mean" else out
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    grads = torch.autograd.grad((torch.where(out.isinf(), 0, out) * weight).sum(), [x, *scale])
    return [t.detach().double() for t in (out, *grads)]


def assert_no_worse_than_plain(kind: str, call: Call) -> None:
    """No further from float64 than plain torch in the same precision, and some rounding."""
    exact, simple = plain(kind, call, torch.float64), plain(kind, call, call.dtype)
    for right, other, mine in zip(exact, simple, results(kind, call, call.dtype), strict=True):
        size = 1 + right.nan_to_num(posinf=0, neginf=0).abs().max().item() if right.numel() else 1
        # sums of n terms, in one order or another, differ by up to n roundings
        terms = call.entries + 2 * call.hub if call.dtype.itemsize > 2 else 0
        rounding = (8 + terms) * torch.finfo(call.dtype).eps * size
        assert distance(mine, right) <= 2 * distance(other, right) + rounding


def distance(a: Tensor, b: Tensor) -> float:
    return torch.where(a == b, 0, a - b).abs().max().item() if a.numel() else 0.0


def assert_like_reference(operation: str, operations, call: Call) -> None:  # type: ignore[no-untyped-def]
    """One operation of one kernel against plain torch, both ways round."""
    which = call.which()
    x = call.tensors(call.dtype, equal=True)[0].detach()
    random = torch.Generator().manual_seed(3)
    for side, count in ((which, call.rows), (which.transposed, call.segments)):
        rows = x if count == call.rows else torch.randn(count, call.d, generator=random)
        rows = rows.to(call.dtype)
        other = torch.randint(-2, 3, (side.rows.segments, call.d), generator=random) / 2
        scale = torch.randn(side.edges, generator=random).to(call.dtype)
        arguments = {
            "segment_sum": (rows, scale, None, side),
            "edge_dots": (other.to(call.dtype), rows, side),
            "segment_extreme": (rows, False, side),
            "equal_sum": (rows * 3, rows, other.to(call.dtype), side),
        }[operation]
        torch.testing.assert_close(
            operations[operation](*arguments),
            reference.OPERATIONS[operation](*arguments),
            atol=1e-4 if call.dtype == torch.float32 else 2e-2,
            rtol=1e-4 if call.dtype == torch.float32 else 2e-2,
        )


__all__ = ["KINDS", "Call", "assert_like_reference", "assert_no_worse_than_plain"]
