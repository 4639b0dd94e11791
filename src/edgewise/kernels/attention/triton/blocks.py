"""Block-sparse attention on a GPU: flash attention over lists of blocks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from edgewise.kernels.attention.autograd import Direct
from edgewise.kernels.attention.block_counts import at_least, exactly
from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms
from edgewise.kernels.attention.triton.launch import (
    Launches,
    empty_on,
    has_readable_strides,
    is_current,
    readable,
)
from edgewise.kernels.attention.triton.passes import (
    BackwardPass,
    Shape,
    backward_pass,
    forward_pass,
)
from edgewise.kernels.attention.triton.score import Packed, unit_of
from edgewise.kernels.attention.triton.settings import block_of
from edgewise.kernels.kernel_choices import no_triton

if TYPE_CHECKING:
    from edgewise.kernels.attention.calls.layout import Layout

name = "triton_blocks"
PAIR = 1.4  # the time of a pair in pairs of a dense product
WIDEST = 256
MOST_HEADS = 65535  # of one launch, over the batch


def refuses(case: Case) -> str | None:
    if reason := no_triton(case.device):
        return reason
    if not case.work:
        return "there are no pairs"
    if case.dtype == torch.float64:
        return "it does not compute in float64"
    if reason := case.scattered(64):
        return reason
    if case.graph.bitmap is not None and block_of(case, "rows") < 32:
        return f"it reads bits in blocks of 32 and 64, not of {block_of(case, 'rows')}"
    if max(case.d, case.dv) > WIDEST:
        return f"{max(case.d, case.dv)} features are more than {WIDEST}"
    if case.b * case.g > MOST_HEADS:
        return f"{case.b * case.g:,} heads, over the batch, are more than {MOST_HEADS:,}"
    return case.lacks("bias", "score", "dropout")


def least(case: Case) -> float:
    """What it costs at least, without looking at all rows."""
    if case.device == "cpu" or refuses(case) is not None:
        return 0.0
    block = block_of(case)
    found = at_least(case.graph, case.n, case.m, block)
    return PAIR * case.b * case.g * found * block * block


def cost(case: Case) -> float:
    slow = 1e3 if case.device == "cpu" else PAIR
    block = block_of(case)
    found = exactly(case.graph, case.n, case.m, block)
    return slow * case.b * case.g * found * block * block


def bind(case: Case, layout: Layout) -> Direct | None:
    """A call without terms, for tensors of any strides."""
    if case.features or len(layout.lead) not in (1, 2):
        return None

    return Direct(name, lambda *tensors: BoundPasses(case, *tensors))


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    q, k, v = _heads(q), k[None], v[None]
    out, lse = forward_pass(case, *_heads_alone(case, q))(q, k, v, _extra(case, terms, q))
    shape = (case.b, case.g, case.n)
    return out.view(*shape, case.dv), lse.view(shape)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    q, out, g = (_heads(x) for x in (saved.q, saved.out, dout))
    k, v = saved.k[None], saved.v[None]
    lse = saved.lse.contiguous()
    lse = lse.clone() if lse.data_ptr() % 16 else lse
    extra, total = _extra(case, saved.terms, q), _IntegerGrads(case, saved.terms, g, v)
    ready = backward_pass(case, *_heads_alone(case, q))
    dq, dk, dv = ready((q, k, v), (g, out, lse), extra, total.buffers)
    return Grads(dq.view(case.b, case.g, case.n, case.d), dk[0], dv[0], total.terms())


def _heads(x: Tensor) -> Tensor:
    """(b, g, tokens, features) as one element of a batch with b·g heads."""
    return x.transpose(0, 1) if x.shape[1] == 1 else x.reshape(1, -1, *x.shape[2:])


def _heads_alone(case: Case, q: Tensor) -> tuple[Shape, tuple[bool, ...], str]:
    """What passes over one element of a batch are made of."""
    return (1, case.b * case.g, case.b), (False, False, False), str(q.device)


class _IntegerGrads:
    """Gradients of tables and biases as integers, `unit` of which are 1."""

    def __init__(self, case: Case, terms: Terms, g: Tensor, v: Tensor) -> None:
        self.inputs, self.learns = terms, case.learns
        if terms.bias is None and not (terms.tables and case.learns):
            self.buffers: tuple[Tensor, ...] = (g, g, g)
            return
        self.packed = Packed.of(terms.tables, g.device)
        self.unit = unit_of(g, v, case.b * case.g * case.n)
        tables = torch.zeros(self.packed.tables.shape, dtype=torch.int64, device=g.device)
        bias = tables if terms.bias is None else torch.zeros_like(terms.bias, dtype=torch.int64)
        self.buffers = (tables, bias.contiguous(), self.unit)

    def terms(self) -> Terms:
        tables, bias, _ = self.buffers
        inputs = self.inputs
        parts = tuple([torch.zeros_like(table) for table in inputs.tables])
        if inputs.tables and self.learns:
            parts = self.packed.split(tables / self.unit, inputs.tables)
        dbias = None if inputs.bias is None else (bias / self.unit).to(inputs.bias.dtype)
        return Terms.of([dbias, None, None, None, None, *parts])


def _extra(case: Case, terms: Terms, q: Tensor) -> tuple[Any, ...] | None:
    """Tables, the bias with its strides, and dropout, as all passes take them."""
    if not case.written_out:
        return None
    tables, sizes, bias, strides = q, q, q, (0, 0, 0)
    if "score" in case.features:
        packed = Packed.of(terms.tables, q.device, case.score)
        tables, sizes = packed.tables, packed.sizes
    if terms.bias is not None:
        bias = terms.bias.contiguous()
        _, _, n, m = bias.shape
        strides = (n * m, m if n > 1 else 0, 1 if m > 1 else 0)
    drop = terms.drop
    chance = (0, 0, 1.0) if drop is None else (drop.seed, drop.least, 1 / (1 - drop.chance))
    return (tables, sizes, bias, *strides, case.m, *chance)


class How(NamedTuple):
    """How a call lies in memory: whether q, k and v have tokens before heads, and whether the
    heads of all samples are one axis of theirs."""

    tokens_first: tuple[bool, ...]
    folded: bool


class BoundPasses:
    """Passes for tensors of some strides; `as_is` if they are read where they are."""

    name = name

    def __init__(self, case: Case, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.case, self.how, self.device = case, _how(q, k, v), q.get_device()
        fits = case.dv * q.itemsize % 16 == 0 and all(map(has_readable_strides, (q, k, v)))
        self.as_is = fits and not self.how.folded and q.ndim == 4
        self.args = (case, _shape(q, k, self.how), self.how.tokens_first, str(q.device))
        self.empty, self.ahead = empty_on(self.device), forward_pass(*self.args)
        self.launches = Launches(self.ahead.steps)

    @cached_property
    def back(self) -> BackwardPass:
        return backward_pass(*self.args)

    @cached_property
    def launches_back(self) -> Launches:
        return Launches(self.back.steps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and numbers that begin with the log-sum-exp."""
        if self.as_is:
            at_q, at_k, at_v = q.data_ptr(), k.data_ptr(), v.data_ptr()
            if not (at_q | at_k | at_v) & 15:
                if not is_current(self.device):
                    with torch.cuda.device(self.device):
                        return self.forward(q, k, v)
                out, sums, scratch = self.ahead.results(self.empty)
                key = (at_q, at_k, at_v, out.data_ptr(), sums.data_ptr(), scratch.data_ptr())
                self.launches.at(self.device, key, q, k, v, out, sums, scratch)
                return out, sums
        read = [readable(_as_read(x, self.how)) for x in (q, k, v)]
        out, sums = self.ahead.launch(*read)
        return _as_input(out, q.shape), sums

    def backward(self, saved: tuple[Tensor, ...], dout: Tensor) -> tuple[Tensor, ...]:
        q, k, v, out, sums = saved
        if self.as_is and not (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15:
            if not is_current(self.device):
                with torch.cuda.device(self.device):
                    return self.backward(saved, dout)
            g, grads = readable(dout), self.back.results(self.empty)
            tensors = (q, k, v, g, out, sums, *grads)
            key = (*[x.data_ptr() for x in tensors], g.stride())
            self.launches_back.at(self.device, key, *tensors)
            return grads[:3]
        q4, k4, v4, dout, out = (_as_read(x, self.how) for x in (q, k, v, dout, out))
        dq, dk, dv = self.back((q4, k4, v4), (dout, out, sums))
        return _as_input(dq, q.shape), _as_input(dk, k.shape), _as_input(dv, v.shape)


def _how(q: Tensor, k: Tensor, v: Tensor) -> How:
    strides = (q.stride(), k.stride(), v.stride())
    first = tuple([x[-3] < x[-2] for x in strides])
    folded = False
    if q.ndim == 4 and len(q) > 1 and not any(first):
        heads = (q.shape[1], k.shape[1], v.shape[1])
        folded = all([x[0] == x[1] * many for x, many in zip(strides, heads, strict=True)])
    return How(first, folded)


def _shape(q: Tensor, k: Tensor, how: How) -> tuple[int, int, int]:
    batch = len(q) if q.ndim == 4 else 1
    heads, keys = q.shape[-3], k.shape[-3]
    return (1, batch * heads, batch * keys) if how.folded else (batch, heads, keys)


def _as_read(x: Tensor, how: How) -> Tensor:
    """(batch, heads, tokens, features) as the passes take it."""
    if how.folded:
        return x.reshape(1, -1, *x.shape[2:])
    return x if x.ndim == 4 else x[None]


def _as_input(x: Tensor, shape: torch.Size) -> Tensor:
    return x.view(shape) if x.ndim != len(shape) or x.shape[0] != shape[0] else x
