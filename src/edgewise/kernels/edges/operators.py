"""Operations along edges with their gradients: autograd functions, and custom operators in a trace.

A custom operator costs several times as much to call, which small graphs would notice. A trace or
a recorder of operations sees one operation, with a rule for its shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import handle_torch_function, has_torch_function

from edgewise.errors import caller
from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.edges.index import EdgeIndex, Grouping
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.edges.registry import EdgeOperation, choose, function, reads_many
from edgewise.kernels.numba_layout import Heads, heads_of

PLAIN = (Tensor, torch.nn.Parameter)
Prepared = EdgeIndex | Grouping
Gradients = tuple[Tensor | None, ...]


class Operation:
    """One operation: `schema` is that of its operator, which takes the prepared index last.

    `fake(*inputs, index)` gives empty results; `gradients(*inputs, *results, index, grad)` how
    the gradients of the first inputs are computed, where `results` are there if they are several:
    only the first is differentiable then, and all are saved. `unsaved(needs)` are the inputs that
    gradients do not read. `ordered(results, inputs)` are those of an operator, with the strides
    that `fake` promises.
    """

    def __init__(
        self,
        schema: str,
        prepared: type[EdgeIndex] | type[Grouping],
        fake: Callable[..., Any],
        gradients: Callable[..., Iterable[Callable[[], Tensor]]] | None = None,
        unsaved: Callable[[Sequence[bool]], set[int]] = lambda needs: set(),
        ordered: Callable[..., Any] = lambda found, inputs: found,
    ) -> None:
        self.__name__ = name = schema[: schema.index("(")]
        self.prepared, self.gradients, self.unsaved = prepared, gradients, unsaved
        self.operator = torch.library.custom_op(
            f"edgewise::{name}",
            lambda *inputs: ordered(self.compute(inputs[:-1], prepared.of(inputs[-1])), inputs),
            mutates_args=(),
            schema=schema[len(name) :],
        )
        self.operator.register_fake(lambda *inputs: fake(*inputs[:-1], prepared.of(inputs[-1])))
        if gradients is not None:
            self.operator.register_autograd(self._of_operator, setup_context=self._save_operator)

    def __call__(self, *inputs: Any, index: Prepared) -> Any:
        if torch._C._is_any_autocast_enabled():
            inputs = of_one_precision(inputs)
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if torch.compiler.is_compiling():
            return self.operator(*inputs, index.tensors)
        if has_torch_function(tensors):
            return handle_torch_function(self, tensors, *inputs, index=index)
        if any(type(x) not in PLAIN or x.is_meta for x in tensors) or get_proxy_mode() is not None:
            return self.operator(*inputs, index.tensors)
        return _Eager.apply(self, index, *inputs)

    def compute(self, inputs: Sequence[Any], index: Prepared) -> Any:
        """On the kernel for tensors like these."""
        axes, width, first = 0, 0, inputs[0]
        for x in inputs:
            if isinstance(x, Tensor) and x.ndim >= axes:  # others are numbers of rows or edges
                width = max(width, int(x.shape[-1])) if x.ndim == axes else int(x.shape[-1])
                axes = x.ndim
        key = (width, first.dtype, first.device.type, reads_many(index, width))
        with without_autocast(first):
            return function(self.__name__, *key)(*inputs, index)

    def save(
        self, ctx: Any, needs: Sequence[bool], inputs: Sequence[Any], output: Any, index: Any = ()
    ) -> None:
        if self.gradients is None:
            return
        outputs = output if isinstance(output, tuple) else ()
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.options = [None if isinstance(x, Tensor) else x for x in inputs]
        skipped = self.unsaved(needs)
        tensors = [
            x if isinstance(x, Tensor) and at not in skipped else None
            for at, x in enumerate(inputs)
        ]
        ctx.save_for_backward(*tensors, *outputs, *index)
        ctx.ends = len(tensors), len(tensors) + len(outputs)

    def differentiated(
        self, ctx: Any, needs: Sequence[bool], grad: Tensor, index: Prepared | None = None
    ) -> Gradients:
        if self.gradients is None:
            _refuse_second_derivative(self.__name__)
        saved, (inputs, outputs) = ctx.saved_tensors, ctx.ends
        read = [x if o is None else o for x, o in zip(saved, ctx.options, strict=False)]
        index = self.prepared.of(saved[outputs:]) if index is None else index
        assert self.gradients is not None
        with without_autocast(grad):
            each = self.gradients(*read, *saved[inputs:outputs], index, grad)
            pairs = zip(needs, each, strict=False)
            found = [compute() if needed else None for needed, compute in pairs]
        return *found, *[None] * (inputs - len(found))

    def _save_operator(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        self.save(ctx, ctx.needs_input_grad, inputs[:-1], output, inputs[-1])

    def _of_operator(self, ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
        found = self.differentiated(ctx, ctx.needs_input_grad, grad)
        return *found, [None] * (len(ctx.saved_tensors) - ctx.ends[1])


def of_one_precision(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Autocast computes some inputs in a lower precision than others: the widest of them."""
    real = [x.dtype for x in inputs if isinstance(x, Tensor) and x.is_floating_point()]
    if len(set(real)) < 2:
        return inputs
    widest = reduce(torch.promote_types, real)
    return tuple(
        x.to(widest) if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs
    )


class _Eager(torch.autograd.Function):
    """Any of the operations."""

    @staticmethod
    def forward(operation: Operation, index: Prepared, *inputs: Any) -> Any:
        read = [x.resolve_neg() if isinstance(x, Tensor) else x for x in inputs]
        return operation.compute(read, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.operation, ctx.index, *read = inputs
        ctx.operation.save(ctx, ctx.needs_input_grad[2:], read, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
        found = ctx.operation.differentiated(ctx, ctx.needs_input_grad[2:], grad, ctx.index)
        return None, None, *found

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        """One call for each element of the batch."""
        found = [
            _Eager.apply(
                *(
                    x if axis is None else x.select(axis, n)
                    for x, axis in zip(arguments, in_dims, strict=True)
                )
            )
            for n in range(info.batch_size)
        ]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode(ctx.operation.__name__)


def refuse_forward_mode(name: str) -> None:
    from edgewise.kernels.attention.errors import NoTransform

    raise NoTransform(
        f"`{name}` has no forward-mode derivative",
        caller(),
        "use reverse mode: `torch.func.jacrev`, `torch.func.vjp` or `backward`",
    )


def _refuse_second_derivative(name: str) -> None:
    from edgewise.kernels.attention.errors import SecondDerivative

    raise SecondDerivative(
        f"`{name}` cannot be differentiated",
        caller(),
        "leave out `create_graph=True` if a second derivative was not meant",
    )


def _segments(x: Tensor, index: EdgeIndex) -> Tensor:
    return x.new_empty(index.rows.segments, x.shape[1])


def _by_columns(scale: Tensor | None, index: EdgeIndex) -> Tensor | None:
    return None if scale is None else scale.index_select(0, index.rows.perm)


sum_along: Operation = Operation(  # `column_scale` is the scale as columns list it, if known
    "segment_sum(Tensor x, Tensor? scale, Tensor? column_scale, Tensor[] index) -> Tensor",
    EdgeIndex,
    lambda x, scale, column_scale, index: _segments(x, index),
    lambda x, scale, column_scale, index, grad: (
        lambda: sum_along(
            grad,
            _by_columns(scale, index) if column_scale is None else column_scale,
            scale,
            index=index.transposed,
        ),
        lambda: edge_dots(grad, x, index=index),
    ),
    unsaved=lambda needs: set() if needs[1] else {0},
)
edge_dots: Operation = Operation(
    "edge_dots(Tensor y, Tensor x, Tensor[] index) -> Tensor",
    EdgeIndex,
    lambda y, x, index: x.new_empty(index.edges),
    lambda y, x, index, grad: (
        lambda: sum_along(x, grad, None, index=index),
        lambda: sum_along(y, _by_columns(grad, index), grad, index=index.transposed),
    ),
)
extreme_along: Operation = Operation(  # edges that are equal share the gradient
    "segment_extreme(Tensor x, bool largest, Tensor[] index) -> (Tensor, Tensor)",
    EdgeIndex,
    lambda x, largest, index: (_segments(x, index), _segments(x, index)),
    lambda x, largest, top, ties, index, grad: (
        lambda: equal_sum(grad / ties.clamp(min=1), top, x, index=index.transposed),
    ),
)
equal_sum: Operation = Operation(
    "equal_sum(Tensor a, Tensor x, Tensor y, Tensor[] index) -> Tensor",
    EdgeIndex,
    lambda a, x, y, index: _segments(a, index),
    lambda a, x, y, index, grad: (lambda: equal_sum(grad, y, x, index=index.transposed),),
    unsaved=lambda needs: {0},
)
linear_by_group: Operation = Operation(
    "grouped_linear(Tensor x, Tensor family, Tensor[] groups) -> Tensor",
    Grouping,
    lambda x, family, groups: x.new_empty(x.shape[0], family.shape[1]),
    lambda x, family, groups, grad: (
        lambda: linear_by_group(grad, family.mT, index=groups),
        lambda: outer_by_group(grad, x, index=groups),
    ),
)
outer_by_group: Operation = Operation(
    "grouped_outer(Tensor y, Tensor x, Tensor[] groups) -> Tensor",
    Grouping,
    lambda y, x, groups: x.new_empty(groups.members, y.shape[1], x.shape[1]),
    lambda y, x, groups, grad: (
        lambda: linear_by_group(x, grad, index=groups),
        lambda: linear_by_group(y, grad.mT, index=groups),
    ),
)


def _in_order(heads: Heads, x: Tensor) -> Tensor:
    """(heads, rows, width), heads or rows first in memory."""
    if not x.numel():
        return x
    like = heads.empty(x.shape[1], x.shape[2], x)[:, 0]
    return x if x.stride() == like.stride() else like.copy_(x)


def _fake_attention(*inputs: Any) -> tuple[Tensor, ...]:
    q, k, v, vector, *_, index = inputs
    n, heads = index.rows.segments, heads_of(len(v), 1, q, k, v)
    out = heads.empty(n, v.shape[2], v)[:, 0]
    lse = v.new_empty(len(v), n, dtype=wide(v.dtype))
    width = int(max(q.shape[2], v.shape[2]))
    kernel = choose(EdgeOperation("additive_attention", width, v.dtype, v.device.type)).kernel
    if vector is not None or kernel.name != "triton":
        return out, lse, v.new_empty(0, 0, 0), lse.new_empty(0, 0)
    return out, lse, torch.empty_like(out), torch.empty_like(lse)


def _ordered_attention(found: tuple[Tensor, ...], inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    (out, lse, plus, share), (q, k, v) = found, inputs[:3]
    heads = heads_of(len(v), 1, q, k, v)
    return _in_order(heads, out), lse.contiguous(), _in_order(heads, plus), share


def _attention_gradients(*saved: Any) -> list[Callable[[], Tensor]]:
    """All are computed at once."""
    *inputs, out, lse, plus, share, index, grad = saved
    found = attention_backward(grad, out, lse, plus, share, *inputs, index=index)
    return [partial(_known, x) for x in found]


def _known(x: Tensor) -> Tensor:
    return x


attend_along: Operation = Operation(
    "additive_attention(Tensor q, Tensor k, Tensor v, Tensor? vector, Tensor? seed, float slope, "
    "float dropout, Tensor[] index) -> (Tensor, Tensor, Tensor, Tensor)",
    EdgeIndex,
    _fake_attention,
    _attention_gradients,
    ordered=_ordered_attention,
)


def _fake_backward(*inputs: Any) -> tuple[Tensor, ...]:
    q, k, v, vector = inputs[5:9]
    heads = heads_of(len(v), 1, q, k, v)
    found = [heads.empty(x.shape[1], x.shape[2], x)[:, 0] for x in (q, k, v)]
    return *found, v.new_empty(0) if vector is None else vector.new_empty(vector.shape)


def _ordered_backward(found: tuple[Tensor, ...], inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    heads = heads_of(len(inputs[7]), 1, *inputs[5:8])
    return *(_in_order(heads, x) for x in found[:3]), found[3].contiguous()


attention_backward = Operation(
    "additive_attention_backward(Tensor dout, Tensor out, Tensor lse, Tensor plus, Tensor share, "
    "Tensor q, Tensor k, Tensor v, Tensor? vector, Tensor? seed, float slope, float dropout, "
    "Tensor[] index) -> (Tensor, Tensor, Tensor, Tensor)",
    EdgeIndex,
    _fake_backward,
    ordered=_ordered_backward,
)


def segment_sum(x: Tensor, index: EdgeIndex, scale: Tensor | None = None) -> Tensor:
    """The sum of each segment: x is (rows, d), scale (edges,) or all ones.

    >>> from edgewise.kernels.edges import edge_index
    >>> index = edge_index(torch.tensor([0, 0, 1]), torch.tensor([2, 0, 2]), 2, 3)
    >>> segment_sum(torch.tensor([[1.0], [2.0], [3.0]]), index).tolist()
    [[4.0], [3.0]]
    """
    found: Tensor = sum_along(x, scale, None, index=index)
    return found


def segment_mean(x: Tensor, index: EdgeIndex) -> Tensor:
    """The mean of each segment; 0 where it is empty."""
    if x.dtype == torch.float64:  # the scales have the digits of float32
        return segment_sum(x, index) / index.rows.ptr.diff().clamp(min=1)[:, None]
    rows, columns = (scale.to(x.dtype) for scale in index.mean_scales)
    found: Tensor = sum_along(x, rows, columns, index=index)
    return found


def segment_extreme(x: Tensor, index: EdgeIndex, *, largest: bool) -> Tensor:
    """The largest or smallest of each segment, column by column; ±∞ where it is empty."""
    found: Tensor = extreme_along(x, largest, index=index)[0]
    return found


def grouped_linear(x: Tensor, family: Tensor, groups: Grouping) -> Tensor:
    """A matrix of a family times each row: x is (rows, d), family (members, m, d)."""
    found: Tensor = linear_by_group(x, family, index=groups)
    return found


def additive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: EdgeIndex,
    *,
    vector: Tensor | None = None,
    slope: float = 1.0,
    dropout: float = 0.0,
) -> Tensor:
    """Σ_e p_e v_j with scores Σ vector ⊙ f(q_i + k_j), f a leaky ReLU: GAT, with a vector GATv2.

    q is (b, n, d), k (b, m, d), v (b, m, dv) and vector (b, 1, d), where b counts the batch and
    the heads; without a vector d is 1.

    >>> from edgewise.kernels.edges import edge_index
    >>> index = edge_index(torch.tensor([0, 0]), torch.tensor([0, 1]), 1, 2)
    >>> q, k = torch.zeros(1, 1, 1), torch.tensor([[[0.0], [-1e9]]])
    >>> additive_attention(q, k, torch.tensor([[[3.0], [4.0]]]), index).flatten().tolist()
    [3.0]
    """
    seed = torch.randint(1 << 31, ()) if dropout else None
    found: Tensor = attend_along(q, k, v, vector, seed, slope, dropout, index=index)[0]
    return found
