"""A prepared call of attention: shapes, graph and options decide all but the numbers.

`attention()`, compiled models, the operator of traces and `explain` run and read the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import handle_torch_function, has_torch_function_variadic
from torch.utils._python_dispatch import _disable_current_modes

from edgewise.errors import caller
from edgewise.graphs.cache import cache_of
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import memory
from edgewise.kernels.attention.calls import arguments, traced
from edgewise.kernels.attention.calls.arguments import counts_twice
from edgewise.kernels.attention.calls.kernel_calls import OneKernel, inner_call
from edgewise.kernels.attention.calls.layout import Spec, Work
from edgewise.kernels.attention.calls.split import Graph
from edgewise.kernels.attention.calls.trace_names import is_traced
from edgewise.kernels.attention.contract import (
    EDGE_AXIS,
    Options,
    TermInputs,
    Terms,
    wide,
)
from edgewise.kernels.attention.errors import SDPA, AttentionShape, refuse_context_parallel
from edgewise.kernels.attention.registry import Choice
from edgewise.layouts.recorded import recorder


class Prepared:
    """A call of attention of which only the numbers are missing.

    `prepared(q, k, v)`, then whatever else it was prepared with: `bias`, `edge_bias`, `edge_scale`,
    `edge_key`, `edge_value`, `lengths` and the `tables` of the score. Nothing is checked: tensors
    must have the shapes, the dtype and the device that it was prepared for. It gives what
    `attention` gives: the output, or a tuple with what `return_lse` and `return_weights` add.

    A `TorchFunctionMode` sees one function, a trace the operator `edgewise::attend`; of meta
    tensors the result is a meta tensor.
    """

    def __init__(self, spec: Spec, options: Options, inputs: TermInputs) -> None:
        self.graph, self.options, self.shape = spec.graph, options, spec.shape
        self.warns = counts_twice(spec.graph)
        self.takes_inputs = bool(inputs.tables) or any(x is not None for x in inputs[:6])
        self.sign = (options.scale > 0) - (options.scale < 0)
        self.plain = self.sign == 1 and not (options.dropout or options.weights or options.lse)
        score, self.numbers = traced.numbered(options, len(inputs.tables), spec.q, spec.device)
        if self.numbers is not None:
            self.plain = False
            inputs = inputs._replace(tables=(*inputs.tables, _meta(self.numbers)))
        positive = replace(options, scale=abs(options.scale) or 1.0, score=score)
        self.inner = inner_call(spec, positive, inputs)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None = None,
        edge_bias: Any = None,
        edge_scale: Any = None,
        edge_key: Any = None,
        edge_value: Any = None,
        lengths: Tensor | None = None,
        tables: Sequence[Tensor] = (),
    ) -> Any:
        inputs = TermInputs(
            bias, edge_bias, edge_scale, edge_key, edge_value, lengths, tuple(tables)
        )
        if torch.compiler.is_compiling():
            refuse_context_parallel()
            return traced.call(q, k, v, self.graph, self.options, inputs)
        return self.call(q, k, v, inputs)

    def call(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> Any:
        """The same outside of `torch.compile`, with all other tensors in one tuple."""
        if has_torch_function_variadic(q, k, v):
            return handle_torch_function(self, (q, k, v), q, k, v, *inputs)
        if torch._C._len_torch_dispatch_stack() and is_traced(q, k, v):
            return traced.call(q, k, v, self.graph, self.options, inputs)
        if q.is_meta:
            return self._meta(q)
        if functional.scaled_dot_product_attention is not SDPA:
            refuse_context_parallel()
        if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(q.device.type):
            with torch.autocast(q.device.type, enabled=False):
                return self._run(q, k, v, inputs)
        if self.plain:
            return self.inner.run(q, k, v, inputs, 0)[0]
        return self._run(q, k, v, inputs)

    def _run(self, q: Tensor, k: Tensor, v: Tensor, inputs: TermInputs) -> Any:
        options = self.options
        if options.weights:
            self._check_weights(q)
        if self.numbers is not None:
            inputs = inputs._replace(tables=(*inputs.tables, self.numbers))
        if self.sign < 1:  # kernels take the largest score before they scale it
            q = -q if self.sign else q * 0
        seed = int(torch.randint(1 << 31, ())) if options.dropout else 0
        found: tuple[Any, ...] = self.inner.run(q, k, v, inputs, seed)
        found = found if options.lse else found[:1]
        if options.weights:
            found = (*found, self.inner.weights(q, k, v, inputs))
        return found if len(found) > 1 else found[0]

    def _check_weights(self, q: Tensor) -> None:
        """Raise before anything is computed if the weights will not fit."""
        pairs, size = self.inner.weights_size
        memory.check(
            size,
            q.device.type,
            f"`return_weights` for {pairs:,} pairs",
            "use `return_lse=True` and compute the weights of the pairs you look at",
        )

    def _meta(self, q: Tensor) -> Any:
        out = q.new_empty(self.shape)
        return (out, q.new_empty(self.shape[:-1], dtype=wide(q.dtype))) if self.options.lse else out

    def holding(self, graph: Graph) -> Prepared:
        """The same for a graph that lives as long: what is cached with a graph does not hold it."""
        found = copy(self)
        found.graph = graph
        return found

    @property
    def work(self) -> Work:
        """Pairs over all heads, floating-point operations, bytes of inputs and output."""
        return self.inner.work

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The kernel of each different graph, and why not the others."""
        return self.inner.choices

    @property
    def choice(self) -> Choice:
        """The kernel, and why not the others; where heads differ, that of the first."""
        return self.choices[0]


def prepare_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph,
    options: Options,
    inputs: TermInputs,
    device: torch.device,
) -> Prepared:
    """A call with tensors like these, of which only shapes and dtypes are read."""
    fixed = not any(table.requires_grad for table in inputs.tables)
    if (recording := recorder()) is not None:
        recording.refuse("attention along a pattern is prepared for its lengths")
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        lengths = None if inputs.lengths is None else torch.as_tensor(inputs.lengths)
        terms = [_meta(term) for term in inputs[:5]]
        inputs = TermInputs._make([*terms, _meta(lengths), tuple(map(_meta, inputs.tables))])
        spec = Spec(_meta(q), _meta(k), _meta(v), cache_of(graph).graph, device, fixed)
        return Prepared(spec, options, inputs)


def prepare_grouped(
    q: Tensor, k: Tensor, v: Tensor, graph: Pattern, options: Options, terms: Terms
) -> OneKernel:
    """The same for tensors as kernels take them, whose score is that of their heads and positions
    already, as in a trace."""
    pairs = arguments.pairs_of(graph, q.shape[2], k.shape[1], options.offset)
    for name, axis in EDGE_AXIS.items():
        if (term := getattr(terms, name)) is not None and term.shape[axis] != pairs:
            raise AttentionShape(
                f"`{name}` has numbers for {term.shape[axis]:,} edges, the graph has {pairs:,}",
                caller(),
                "give one for each pair, in the order of `graph.edges(n, m)`",
            )
    vectors = [None if x is None else x[:, None] for x in (terms.edge_key, terms.edge_value)]
    bare = TermInputs._make([terms.bias, terms.edge_bias, terms.edge_scale, *vectors, None, ()])
    metas = TermInputs._make([_meta(x) for x in bare])
    tensors = (_meta(q), _meta(k[:, None]), _meta(v[:, None]))
    spec = Spec(*tensors, cache_of(graph).graph, q.device, grouped=True)
    return OneKernel(spec, options, metas)


def _meta(x: Any) -> Any:
    """A tensor, or those of several graphs, without their numbers."""
    if isinstance(x, list | tuple):
        return [_meta(part) for part in x]
    if not isinstance(x, Tensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
