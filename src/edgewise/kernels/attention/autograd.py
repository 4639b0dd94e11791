"""A kernel as a differentiable operation: its first derivative, backwards, is written by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.errors import caller
from edgewise.graphs.cache import GraphCache, cache_of
from edgewise.kernels.attention import memory, reference
from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.attention.contract import (
    NO_TERMS,
    Case,
    Grads,
    Implementation,
    Saved,
    Terms,
    wide,
)
from edgewise.kernels.attention.errors import NoTransform, refuse_second
from edgewise.kernels.edges.attention import Dropout


def attend(
    implementation: Implementation, case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms
) -> tuple[Tensor, Tensor]:
    """The output (b, g, n, dv) and the log-sum-exp (b, g, n), which is -∞ in empty rows."""
    if implementation is reference:  # differentiable as it is written, any number of times
        return reference.forward(case, q, k, v, terms)
    tensors = (q, k, v) if terms is NO_TERMS else (q, k, v, *terms.tensors)
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        refuse_transforms(implementation.name, *tensors)
    learns = False
    for x in tensors:
        if x is not None:
            learns = learns or x.requires_grad
            if x.is_neg():
                return attend(implementation, case, *_resolved(q, k, v, terms))
    if not (learns and torch.is_grad_enabled()):
        return implementation.forward(case, q, k, v, terms)
    call = (implementation, case, terms.drop, cache_of(case.graph))
    out, lse = _apply(call, *tensors)
    return out, lse


def _resolved(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Any, ...]:
    """Where a tensor is a negated view, what it stands for."""
    rest = [x if x is None else x.resolve_neg() for x in terms.tensors]
    terms = terms if terms is NO_TERMS else Terms.of(rest, terms.drop)
    return q.resolve_neg(), k.resolve_neg(), v.resolve_neg(), terms


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        call: tuple[Implementation, Case, Dropout | None, GraphCache],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *terms: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        implementation, case, drop, _ = ctx.call = (
            call  # with the cache: whoever holds the graph may let go of it
        )
        inputs = Terms.of(terms, drop) if terms else NO_TERMS
        out, lse = implementation.forward(case, q, k, v, inputs)
        ctx.save_for_backward(q, k, v, *terms, out, lse)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        implementation, case, drop, _ = ctx.call
        if torch.is_grad_enabled():
            refuse_second(implementation.name)
        q, k, v, *terms, out, lse = ctx.saved_tensors
        dout = dout if dout is None or not dout.is_neg() else dout.resolve_neg()
        dlse = dlse if dlse is None or not dlse.is_neg() else dlse.resolve_neg()
        saved = Saved(q, k, v, Terms.of(terms, drop) if terms else NO_TERMS, out, lse)
        with without_autocast(q), memory.explained(case, implementation.name):
            grads = gradients(implementation, case, saved, dout, dlse)
        of_terms = _in_place(terms, grads.terms) if terms else ()
        return None, grads.q, grads.k, grads.v, *of_terms


def direct_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` without its search for transforms of `torch.func` and default arguments,
    which takes a third of its time: callers have none."""
    found: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return found


_apply = direct_apply(_Attend)


class Bound(Protocol):
    """A kernel for q, k and v of some shapes and strides, without terms."""

    name: str
    case: Case

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and what else the backward pass needs."""

    def backward(self, saved: tuple[Tensor, ...], dout: Tensor) -> tuple[Tensor, ...]:
        """The gradients of q, k and v; `saved` are these and both results."""


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bound: Bound, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, sums = bound.forward(q, k, v)
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.bound = bound
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        bound = ctx.bound
        if torch.is_grad_enabled():
            refuse_second(bound.name)
        dout = dout.resolve_neg() if dout.is_neg() else dout
        try:
            with without_autocast(dout):
                return None, *bound.backward(ctx.saved_tensors, dout)
        except (RuntimeError, MemoryError) as error:
            memory.explain(error, bound.case, bound.name)
            raise


_differentiable = direct_apply(_Differentiable)


class Direct:
    """A kernel without terms, bound once to tensors of some strides: nothing is between a call of
    it and its launches."""

    def __init__(self, name: str, bind: Callable[[Tensor, Tensor, Tensor], Bound]) -> None:
        self.name, self.bind = name, bind
        self.bound: dict[tuple[Any, ...], Bound] = {}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            refuse_transforms(self.name, q, k, v)
        if q.is_neg() or k.is_neg() or v.is_neg():
            q, k, v = q.resolve_neg(), k.resolve_neg(), v.resolve_neg()
        key = (q.stride(), k.stride(), v.stride(), q.get_device())
        bound = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = self.bind(q, k, v)
        if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
            found: Tensor = _differentiable(bound, q, k, v)
            return found
        return bound.forward(q, k, v)[0]


def _in_place(inputs: list[Tensor | None], grads: Terms) -> list[Tensor | None]:
    tables = iter(grads.tables)
    found = [*grads.tensors[:5]]
    return found + [None if table is None else next(tables, None) for table in inputs[5:]]


def gradients(
    implementation: Implementation,
    case: Case,
    saved: Saved,
    dout: Tensor | None,
    dlse: Tensor | None,
) -> Grads:
    """All gradients; `saved.lse` is as the forward pass gave it."""
    dout = torch.zeros_like(saved.out) if dout is None else dout
    if implementation is reference:
        return reference.backward(case, saved, dout, dlse)
    if case.features - {"lse"} or not case.facts.no_empty_row:  # a bias can be -∞ in all of a row
        lse = torch.where(saved.lse == -torch.inf, torch.inf, saved.lse)
        saved = Saved(saved.q, saved.k, saved.v, saved.terms, saved.out, lse)
    if dlse is None:
        return implementation.backward(case, saved, dout)
    own = getattr(implementation, "backward_with_lse", None)
    if own is not None:
        found: Grads = own(case, saved, dout, dlse)
        return found
    return _with_lse(implementation, case, saved, dout, dlse)


def _with_lse(
    implementation: Implementation, case: Case, saved: Saved, dout: Tensor, dlse: Tensor
) -> Grads:
    """The gradient of the log-sum-exp too: one more feature, which no value has and `out` lacks.

    ds = p·(keep·dout·v - dout·out + dlse), for v' = (v, 0), dout' = (dout, dlse), out' = (out, -1).
    """
    dlse = torch.where(saved.lse == torch.inf, 0, dlse)[..., None].to(dout.dtype)
    out = torch.cat([saved.out, torch.full_like(dlse, -1)], -1)
    terms, drop = saved.terms, saved.terms.drop
    none = saved.v.new_zeros(*saved.v.shape[:-1], 1)
    v, dout = torch.cat([saved.v, none], -1), torch.cat([dout, dlse], -1)
    if terms.edge_value is not None:
        none = terms.edge_value.new_zeros(*terms.edge_value.shape[:-1], 1)
        wider_value = torch.cat([terms.edge_value, none], -1)
        terms = Terms.of([*terms.tensors[:4], wider_value, *terms.tables], drop)
    wider = replace(case, dv=case.dv + 1)
    found = implementation.backward(wider, Saved(saved.q, saved.k, v, terms, out, saved.lse), dout)
    rest = found.terms
    if rest.edge_value is not None:
        rest = Terms.of([*rest.tensors[:4], rest.edge_value[..., :-1], *rest.tables])
    return Grads(found.q, found.k, found.v[..., :-1], rest)


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """Σ over features, in the wide precision."""
    kind = wide(a.dtype)
    return (a.to(kind) * b.to(kind)).sum(-1)


def refuse_transforms(kernel: str, *tensors: Tensor | None) -> None:
    """An error for tensors inside `torch.func`."""
    if torch._C._are_functorch_transforms_active():
        _refuse(kernel, "be transformed by `torch.func`")
    refuse_forward_mode(kernel, *tensors)


def refuse_forward_mode(kernel: str, *tensors: Tensor | None) -> None:
    """An error for tensors that carry a derivative with them."""
    if forward_ad._current_level < 0:
        return
    if any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        _refuse(kernel, "be differentiated in forward mode")


def _refuse(kernel: str, what: str) -> None:
    raise NoTransform(
        f"the kernel `{kernel}` cannot {what}",
        caller(),
        'use `kernel="reference"`; for `vmap`, give a batch: any axes may stand before the heads',
    )
