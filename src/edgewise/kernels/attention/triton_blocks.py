"""Block-sparse attention on a GPU: flash attention over lists of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import pad

from edgewise.kernels.attention import memory
from edgewise.kernels.attention.autograd import direct_apply, refuse_transforms
from edgewise.kernels.attention.block_counts import at_least, exactly
from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms
from edgewise.kernels.attention.errors import refuse_second
from edgewise.kernels.attention.triton_launch import has_readable_strides, readable
from edgewise.kernels.attention.triton_passes import BLOCK, Passes, passes, width
from edgewise.kernels.attention.triton_score import Packed, unit_of
from edgewise.kernels.chosen import no_triton

if TYPE_CHECKING:
    from edgewise.kernels.attention.layout import Layout

name = "triton_blocks"
PAIR = 1.4  # the time of a pair in pairs of a dense product
WIDEST = 128
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
    if max(case.d, case.dv) > WIDEST:
        return f"{max(case.d, case.dv)} features are more than {WIDEST}"
    if case.b * case.g > MOST_HEADS:
        return f"{case.b * case.g:,} heads, over the batch, are more than {MOST_HEADS:,}"
    return case.lacks("bias", "score", "dropout")


def least(case: Case) -> float:
    """What it costs at least, without looking at all rows."""
    if case.device == "cpu" or refuses(case) is not None:
        return 0.0
    found = at_least(case.graph, case.n, case.m, BLOCK)
    return PAIR * case.b * case.g * found * BLOCK * BLOCK


def cost(case: Case) -> float:
    slow = 1e3 if case.device == "cpu" else PAIR
    found = exactly(case.graph, case.n, case.m, BLOCK)
    return slow * case.b * case.g * found * BLOCK * BLOCK


def bind(case: Case, layout: Layout) -> Direct | None:
    """A call without terms: nothing between it and its launches."""
    return Direct(case) if not case.features and len(layout.lead) in (1, 2) else None


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    q, k, v = _heads(padded(q)), padded(k)[None], padded(v)[None]
    out, lse = _passes(case, q).forward(q, k, v, _extra(case, terms, q))
    shape = (case.b, case.g, case.n)
    return _cut(out.view(*shape, -1), case.dv), lse.view(shape)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    q, out, g = (_heads(padded(x)) for x in (saved.q, saved.out, dout))
    k, v = padded(saved.k)[None], padded(saved.v)[None]
    lse = saved.lse.contiguous()
    lse = lse.clone() if lse.data_ptr() % 16 else lse
    extra, total = _extra(case, saved.terms, q), _IntegerGrads(case, saved.terms, g, v)
    found = _passes(case, q).backward((q, k, v), (g, out, lse), extra, total.buffers)
    dq, dk, dv = found[0].view(case.b, case.g, case.n, -1), found[1][0], found[2][0]
    return Grads(_cut(dq, case.d), _cut(dk, case.d), _cut(dv, case.dv), total.terms())


def _heads(x: Tensor) -> Tensor:
    """(b, g, tokens, features) as one element of a batch with b·g heads."""
    return x.transpose(0, 1) if x.shape[1] == 1 else x.reshape(1, -1, *x.shape[2:])


def _passes(case: Case, q: Tensor) -> Passes:
    shape = (1, case.b * case.g, case.b)
    return passes(case, shape, (False, False, False), str(q.device))


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


def _cut(x: Tensor, features: int) -> Tensor:
    """Without the features of the padding."""
    return x if x.shape[-1] == features else x[..., :features]


def padded(x: Tensor) -> Tensor:
    """With features next to each other, their number a power of two of at least 16."""
    missing = width(x.shape[-1]) - x.shape[-1]
    if missing:
        return pad(x, (0, missing))
    return x if x.stride(-1) == 1 else x.contiguous()


class How(NamedTuple):
    """How a call lies in memory: whether q, k and v have tokens before heads, and whether the
    heads of all samples are one axis of theirs."""

    tokens_first: tuple[bool, ...]
    folded: bool


class Direct:
    """(..., heads, n, dv) of tensors with any strides, which decide how they are launched."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.bound: dict[tuple[Any, ...], _BoundPasses] = {}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            refuse_transforms(name, q, k, v)
        if q.is_neg() or k.is_neg() or v.is_neg():
            q, k, v = q.resolve_neg(), k.resolve_neg(), v.resolve_neg()
        key = (q.stride(), k.stride(), v.stride(), q.get_device())
        bound = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = self._bind(q, k, v)
        if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
            found: Tensor = _apply(bound, q, k, v)
            return found
        return bound.forward(q, k, v)[0]

    def _bind(self, q: Tensor, k: Tensor, v: Tensor) -> _BoundPasses:
        how = _how(q, k, v)
        ready = passes(self.case, _shape(q, k, how), how.tokens_first, str(q.device))
        same = ready.exact and not how.folded and q.ndim == 4
        return _BoundPasses(ready, how, same and all(map(has_readable_strides, (q, k, v))))


class _BoundPasses(NamedTuple):
    """Passes for tensors of some strides; `as_is` if they are read where they are."""

    ready: Passes
    how: How
    as_is: bool

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and numbers that begin with the log-sum-exp."""
        if self.as_is and not (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15:
            return self.ready.launch(q, k, v)
        read = [readable(_as_read(x, self.ready, self.how)) for x in (q, k, v)]
        out, sums = self.ready.launch(*read)
        return _as_input(out, q.shape, self.ready.case.dv), sums


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


def _as_read(x: Tensor, ready: Passes, how: How) -> Tensor:
    """(batch, heads, tokens, features) as the passes take it."""
    x = x if ready.exact else padded(x)
    if how.folded:
        return x.reshape(1, -1, *x.shape[2:])
    return x if x.ndim == 4 else x[None]


def _as_input(x: Tensor, shape: torch.Size, features: int) -> Tensor:
    if x.ndim != len(shape) or x.shape[0] != shape[0]:
        x = x.view(*shape[:-1], x.shape[-1])
    return x if x.shape[-1] == features else x[..., :features]


class _Direct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bound: _BoundPasses, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, sums = bound.forward(q, k, v)
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.bound = bound
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            refuse_second(name)
        ready, how, _ = ctx.bound
        q, k, v, out, sums = ctx.saved_tensors
        read = (q, k, v, dout.resolve_neg() if dout.is_neg() else dout, out)
        q4, k4, v4, dout, out = (_as_read(x, ready, how) for x in read)
        try:
            dq, dk, dv = ready.backward((q4, k4, v4), (dout, out, sums))
        except (RuntimeError, MemoryError) as error:
            memory.explain(error, ready.case, name)
            raise
        d = q.shape[-1]
        grads = _as_input(dq, q.shape, d), _as_input(dk, k.shape, d)
        return None, *grads, _as_input(dv, v.shape, v.shape[-1])


_apply = direct_apply(_Direct)
