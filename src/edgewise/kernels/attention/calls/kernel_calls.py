"""What a prepared call runs: one kernel, with lengths of keys, or one call for each graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.graphs.cache import cached
from edgewise.graphs.families import Family, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import memory
from edgewise.kernels.attention.autograd import attend
from edgewise.kernels.attention.calls import term_arguments
from edgewise.kernels.attention.calls.layout import Expanded, Layout, Spec, Work
from edgewise.kernels.attention.calls.split import GraphPart, check_family, joined, parts_of
from edgewise.kernels.attention.contract import (
    NO_TERMS,
    Options,
    TermInputs,
    changes_scores,
)
from edgewise.kernels.attention.registry import Choice, choose
from edgewise.kernels.attention.triton import decoding as triton_decoding

MASKED = 16  # queries whose keys are masked, not padded
FAR = 1e30  # exp(-FAR) is 0 beside the weight of any score
Out = tuple[Tensor, Tensor | None]


class OneKernel:
    """One graph: its kernel, and how tensors are shaped for it."""

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs) -> None:
        self.shape, self.layout = spec.shape, Layout(spec, options, inputs)
        self.case, self.lse, self.bare = self.layout.case, options.lse, self.layout.bare
        choice = choose(self.case, options.kernel)
        self.choices, self.kernel = (choice,), choice.implementation
        bind = getattr(self.kernel, "bind", None)
        self.bound: Callable[..., Tensor] | None = None
        if bind is not None and not options.lse:
            self.bound = bind(self.case, self.layout)

    def run(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs, seed: int) -> Out:
        terms = NO_TERMS if self.bare else self.layout.terms(inputs, seed)
        try:
            if self.bound is not None:
                return self.bound(q, k, v, terms), None
            of_q, of_k, of_v = self.layout.shapes
            tensors = q.reshape(of_q), k.reshape(of_k), v.reshape(of_v)
            out, lse = attend(self.kernel, self.case, *tensors, terms)
        except (RuntimeError, MemoryError) as error:  # of torch, on either device, and of NumPy
            memory.explain(error, self.case, self.kernel.name)
            raise
        return out.reshape(self.shape), lse.reshape(self.shape[:-1]) if self.lse else None

    def weights(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> Tensor:
        return self.layout.weights(q, k, v, inputs)

    @property
    def weights_size(self) -> tuple[int, int]:
        return self.layout.weights_size

    @property
    def work(self) -> Work:
        return self.layout.work


class PaddedKeys:
    """Keys from lengths[b] on do not exist: one more feature of theirs makes their scores low.

    So no mask per batch element is needed, and every kernel can do it. Queries that attend to late
    keys only lack the feature: their scores stay such that gradients of what is cleared are zeros.
    """

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs) -> None:
        assert isinstance(spec.graph, Pattern)
        n, m = spec.q.shape[-2], spec.k.shape[-2]
        inputs = inputs._replace(lengths=None)
        self.layout = Layout(spec, options, inputs)
        self.first = first_keys(spec.graph, n, m, options.offset).to(spec.device)
        self.place = torch.arange(m, device=spec.device)
        self.low = max(-FAR / options.scale, torch.finfo(spec.q.dtype).min)
        q, k = (x.new_empty(*x.shape[:-1], x.shape[-1] + 1) for x in (spec.q, spec.k))
        self.inner = OneKernel(spec._replace(q=q, k=k), options, inputs)
        self.choices, self.weights_size = self.inner.choices, self.layout.weights_size
        self.work = self.layout.work

    def run(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs, seed: int) -> Out:
        lengths = _lengths(inputs)
        late, attends = self.place >= lengths, self.first < lengths
        attends = attends[..., None, :] if q.ndim > 2 else attends
        late = late[..., None, :, None] if k.ndim > 2 else late[..., None]
        low = torch.where(late, self.low, 0.0).to(k.dtype)
        q = torch.cat([q, attends[..., None].to(q.dtype).expand(*q.shape[:-1], 1)], -1)
        k = torch.cat([k, low.expand(*k.shape[:-1], 1)], -1)
        out, lse = self.inner.run(q, k, v, inputs._replace(lengths=None), seed)
        out = torch.where(attends[..., None], out, 0.0)
        return out, None if lse is None else torch.where(attends, lse, -torch.inf)

    def weights(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> Tensor:
        return self.layout.weights(q, k, v, inputs)


class MaskedKeys:
    """The same by a bias of -∞, where the score may make something else of a low dot product."""

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs) -> None:
        self.layout = Layout(spec, options, inputs._replace(lengths=None))
        self.place = torch.arange(spec.k.shape[-2], device=spec.device)
        self.dtype = spec.q.dtype
        between = (1,) * (min(spec.q.ndim, 3) - 1)
        mask = spec.q.new_empty(*spec.q.shape[:-3], *between, len(self.place))
        self.inner = OneKernel(spec, options, self._biased(mask, inputs))
        self.choices, self.weights_size = self.inner.choices, self.layout.weights_size
        self.work = self.layout.work

    def _biased(self, mask: Tensor, inputs: TermInputs) -> TermInputs:
        bias = inputs.bias
        bias = None if bias is None else term_arguments.as_bias(bias, self.dtype)
        return inputs._replace(lengths=None, bias=mask if bias is None else mask + bias)

    def run(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs, seed: int) -> Out:
        late = self.place >= _lengths(inputs)
        late = late[..., None, None, :] if k.ndim > 2 else late[..., None, :]
        mask = torch.zeros(late.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(late, -torch.inf)
        return self.inner.run(q, k, v, self._biased(mask, inputs), seed)

    def weights(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> Tensor:
        return self.layout.weights(q, k, v, inputs)


class RaggedCaches:
    """The same for few queries by a kernel that reads no key beyond its length, where nothing
    learns; gradients are those of masked keys."""

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs, layout: Layout) -> None:
        self.layout, self.options, self.work = layout, options, layout.work
        self.case, self.weights_size = layout.case, layout.weights_size
        self.choices = (choose(layout.case, triton_decoding.name),)
        self.spec, self.inputs, self.shape = spec, inputs, spec.shape

    @cached_property
    def decode(self) -> triton_decoding.Decoding:
        return triton_decoding.decoding(self.case, str(self.spec.device), True)

    @cached_property
    def masked(self) -> MaskedKeys:
        return MaskedKeys(self.spec, replace(self.options, kernel=None), self.inputs)

    def run(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs, seed: int) -> Out:
        learns = q.requires_grad or k.requires_grad or v.requires_grad
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            learns = True
        if (learns and torch.is_grad_enabled()) or q.is_neg() or k.is_neg() or v.is_neg():
            return self.masked.run(q, k, v, inputs, seed)
        lengths = _lengths(inputs)[..., 0]
        if q.ndim == 4:
            return self.decode(q, k, v, NO_TERMS, lengths.contiguous())
        of_q, of_k, of_v = self.layout.shapes
        q, k, v = q.reshape(of_q), k.reshape(of_k)[:, None], v.reshape(of_v)[:, None]
        lengths = lengths.reshape(-1).repeat_interleave(self.case.b // max(lengths.numel(), 1))
        out, lse = self.decode(q, k, v, NO_TERMS, lengths)
        return out.reshape(self.shape), lse.reshape(self.shape[:-1])

    def weights(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> Tensor:
        return self.layout.weights(q, k, v, inputs)


class Split:
    """Heads or samples with graphs of their own: one prepared call for each different graph."""

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs) -> None:
        assert isinstance(spec.graph, Family)
        check_family(spec.graph, spec.q)
        self.samples = isinstance(spec.graph, per_sample)
        self.expand = Expanded(spec, options, inputs)
        inputs = self.expand.inputs
        self.parts: list[tuple[GraphPart, Inner]] = []
        for part in parts_of(spec.graph):
            q, k, v, rest = part.taken(spec.q, spec.k, spec.v, inputs, self.samples)
            one = spec._replace(q=q, k=k, v=v, graph=part.graph)
            self.parts.append((part, inner_call(one, options, rest)))
        self.order = [at for part, _ in self.parts for at in part.at]

    def run(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs, seed: int) -> Out:
        inputs, found = self.expand(inputs), []
        for part, inner in self.parts:
            taken = part.taken(q, k, v, inputs, self.samples)
            found.append(inner.run(*taken, part.seed(seed, self.samples)))
        axis = 4 if self.samples else 3
        out = joined([out for out, _ in found], self.order, -axis)
        sums = [lse for _, lse in found if lse is not None]
        return out, joined(sums, self.order, 1 - axis) if sums else None

    def weights(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> list[Any]:
        """Of heads, a list with (..., e) of each; of samples, a list with (heads, e) of each, or
        with such a list."""
        inputs, out = self.expand(inputs), list[Any]([None]) * len(self.order)
        for part, inner in self.parts:
            found: Any = inner.weights(*part.taken(q, k, v, inputs, self.samples))
            for number, at in enumerate(part.at):
                if not self.samples:
                    out[at] = found[..., number, :]
                elif isinstance(found, list):
                    out[at] = [of_head[number] for of_head in found]
                else:
                    out[at] = found[number]
        return out

    @property
    def weights_size(self) -> tuple[int, int]:
        pairs, sizes = zip(*(inner.weights_size for _, inner in self.parts), strict=True)
        return sum(pairs), sum(sizes)

    @property
    def choices(self) -> tuple[Choice, ...]:
        return tuple(choice for _, inner in self.parts for choice in inner.choices)

    @property
    def work(self) -> Work:
        return Work(*(sum(x) for x in zip(*(inner.work for _, inner in self.parts), strict=True)))


Inner = OneKernel | PaddedKeys | MaskedKeys | RaggedCaches | Split


def inner_call(spec: Spec, options: Options, inputs: TermInputs) -> Inner:
    if not isinstance(spec.graph, Pattern):
        return Split(spec, options, inputs)
    if inputs.lengths is None:
        return OneKernel(spec, options, inputs)
    if not changes_scores(options, inputs) and not options.dropout and _reads_lengths(options):
        layout = Layout(spec, options, inputs._replace(lengths=None))
        if triton_decoding.refuses(layout.case) is None:
            return RaggedCaches(spec, options, inputs, layout)
    # one more feature is a copy of all keys: for few queries that takes longer than attention
    masked = changes_scores(options, inputs) or spec.q.shape[-2] <= MASKED
    return (MaskedKeys if masked else PaddedKeys)(spec, options, inputs)


def _reads_lengths(options: Options) -> bool:
    """Whether the kernel that reads the lengths themselves may be taken."""
    return options.kernel in (None, triton_decoding.name)


def _lengths(inputs: TermInputs) -> Tensor:
    assert inputs.lengths is not None
    return inputs.lengths[..., None]


@cached
def first_keys(graph: Pattern, n: int, m: int, offset: int) -> Tensor:
    """The first key that each query attends to; m where there is none."""
    rows = (graph.shift(-offset, 0) if offset else graph).rows(n, m).expand()
    first = np.full(n, m, np.int64)
    np.minimum.at(first, rows.slab, rows.start)
    return torch.from_numpy(first)
