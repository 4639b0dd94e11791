"""The operators of torch that a tape has: what each becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.kernels.tape.instructions import BINARY, UNARY
from edgewise.kernels.tape.writer import MERGED, NotRecordedError

if TYPE_CHECKING:
    from edgewise.kernels.tape.recording import Recorder

Compute = Callable[..., Tensor]

CREATE = {  # read shapes alone
    *("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full"),
    *("new_empty", "new_empty_strided"),
}
MOVE = {
    *("index_select", "index", "cat", "stack", "clone", "gather", "flip", "roll", "repeat"),
    *("_unsafe_view", "_to_copy", "_unsafe_index", "view_copy", "lift_fresh_copy"),
}
PAD = {"select_backward", "slice_backward"}


def _elementwise(recorder: Recorder, name: str, *things: Any, alpha: float = 1) -> Tensor:
    places = [recorder.addresses(thing) for thing in things]
    if alpha != 1:
        places[1] = recorder.tape.elementwise("mul", [places[1], recorder.addresses(alpha)])
    return recorder.tape.elementwise(SAME.get(name, name), places)


def _power(recorder: Recorder, name: str, a: Any, b: Any) -> Tensor:
    x, y = recorder.addresses(a), recorder.addresses(b)
    if recorder.tape.is_constant(y, 2.0):
        return recorder.tape.elementwise(
            "mul", [x.expand(torch.broadcast_shapes(x.shape, y.shape)), x]
        )
    return recorder.tape.elementwise("pow", [x, y])


def _slope(function: str) -> Compute:
    def found(recorder: Recorder, name: str, grad: Tensor, result: Tensor) -> Tensor:
        places = [recorder.addresses(grad), recorder.addresses(result)]
        return recorder.tape.elementwise("slope", places, function)

    return found


def _divided(recorder: Recorder, name: str, a: Any, b: Any, rounding_mode: Any = None) -> Tensor:
    if rounding_mode is not None:
        raise NotRecordedError("a quotient is rounded")
    return _elementwise(recorder, name, a, b)


def _reversed(recorder: Recorder, name: str, a: Any, b: Any, alpha: float = 1) -> Tensor:
    return _elementwise(recorder, "sub", b, a, alpha=alpha)


def _root(recorder: Recorder, name: str, a: Tensor) -> Tensor:
    root = recorder.tape.elementwise("sqrt", [recorder.addresses(a)])
    return recorder.tape.elementwise("reciprocal", [root])


def _clamped(recorder: Recorder, name: str, a: Tensor, low: Any = None, high: Any = None) -> Tensor:
    found = recorder.addresses(a)
    for function, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            found = recorder.tape.elementwise(function, [found, recorder.addresses(bound)])
    return found


def _clamped_below(recorder: Recorder, name: str, a: Tensor, low: Any) -> Tensor:
    return _clamped(recorder, name, a, low)


def _copied(recorder: Recorder, name: str, a: Tensor, b: Any, non_blocking: bool = False) -> Tensor:
    return recorder.addresses(b)


def _zeros(recorder: Recorder, name: str, a: Tensor) -> Tensor:
    return recorder.addresses(0.0)


def _product(recorder: Recorder, name: str, a: Tensor, b: Tensor) -> Tensor:
    return recorder.tape.product(recorder.addresses(a), recorder.addresses(b))


def _by_vector(recorder: Recorder, name: str, a: Tensor, b: Tensor) -> Tensor:
    x, y = recorder.addresses(a), recorder.addresses(b)
    found = recorder.tape.product(x if x.dim() > 1 else x[None], y[:, None])
    return found[:, 0] if x.dim() > 1 else found[0, 0]


def _affine(
    recorder: Recorder,
    name: str,
    c: Tensor,
    a: Tensor,
    b: Tensor,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    found, start = _product(recorder, name, a, b), recorder.addresses(c)
    if alpha != 1:
        found = recorder.tape.elementwise("mul", [found, recorder.addresses(alpha)])
    if beta != 1:
        start = recorder.tape.elementwise("mul", [start, recorder.addresses(beta)])
    return recorder.tape.elementwise("add", [found, start])


def _sum(
    recorder: Recorder, name: str, a: Tensor, dim: Any = (), keepdim: bool = False, **options: Any
) -> Tensor:
    if options.get("dtype") not in (None, recorder.dtype):
        raise NotRecordedError("values are summed in another precision")
    return recorder.tape.aggregate("sum", recorder.addresses(a), _dims(dim), keepdim)


def _mean(
    recorder: Recorder, name: str, a: Tensor, dim: Any = (), keepdim: bool = False, **options: Any
) -> Tensor:
    total = _sum(recorder, name, a, dim, keepdim, **options)
    count = a.numel() / max(total.numel(), 1)
    return recorder.tape.elementwise("div", [total, recorder.addresses(count)])


def _variance(
    recorder: Recorder,
    name: str,
    a: Tensor,
    dim: Any = (),
    correction: float | None = 1,
    keepdim: bool = False,
    **options: Any,
) -> Tensor:
    tape, values, dims = recorder.tape, recorder.addresses(a), _dims(dim)
    total = tape.aggregate("sum", values, dims, keep=True)
    count = a.numel() / max(total.numel(), 1)
    mean = tape.elementwise("div", [total, recorder.addresses(count)])
    apart = tape.elementwise("sub", [values, mean])
    found = tape.aggregate("sum", tape.elementwise("mul", [apart, apart]), dims, keepdim)
    rest = max(count - (1 if correction is None else correction), 0)
    return tape.elementwise("div", [found, recorder.addresses(rest)])


def _extreme(op: str) -> Compute:
    def found(
        recorder: Recorder, name: str, a: Tensor, dim: Any = (), keepdim: bool = False
    ) -> Tensor:
        return recorder.tape.aggregate(op, recorder.addresses(a), _dims(dim), keepdim)

    return found


def _dims(dim: Any) -> Sequence[int]:
    if dim is None:
        return ()
    return (dim,) if isinstance(dim, int) else tuple(dim)


SAME = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_not": "logical_not"}
SAME |= {"sgn": "sign"}
COMPUTE: dict[str, Compute] = dict.fromkeys((*UNARY, *BINARY, *SAME, "where"), _elementwise)
COMPUTE |= {
    **{"div": _divided, "rsub": _reversed, "rsqrt": _root, "copy": _copied, "zero": _zeros},
    **{"clamp": _clamped, "clamp_min": _clamped_below, "fill": _copied},
    **{"mm": _product, "bmm": _product, "mv": _by_vector, "dot": _by_vector, "addmm": _affine},
    **{"pow": _power, "tanh_backward": _slope("tanh"), "sigmoid_backward": _slope("sigmoid")},
    **{"baddbmm": _affine, "sum": _sum, "mean": _mean, "var": _variance},
    **{"amax": _extreme("largest"), "amin": _extreme("smallest")},
}


Moves = list[tuple[str, Tensor, Tensor]]  # what values become of those at positions: all three


def _index_add(
    recorder: Recorder, target: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Moves:
    values = recorder.addresses(source)
    if alpha != 1:
        values = recorder.tape.elementwise("mul", [values, recorder.addresses(alpha)])
    places = target.index_select(dim, index) if target.dim() else target
    return [("scatter_add", places, values.expand(places.shape))]


def _scatter_add(
    recorder: Recorder, target: Tensor, dim: int, index: Tensor, source: Tensor
) -> Moves:
    values = recorder.addresses(source)[tuple(slice(n) for n in index.shape)]
    return [("scatter_add", target.gather(dim, index), values)]


def _index_put(
    recorder: Recorder,
    target: Tensor,
    indices: Any,
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Moves:
    places, source = torch.ops.aten.index(target, indices), recorder.addresses(values)
    return [("scatter_add" if accumulate else "put", places, source.expand(places.shape))]


def _index_copy(
    recorder: Recorder, target: Tensor, dim: int, index: Tensor, source: Tensor
) -> Moves:
    return [("put", target.index_select(dim, index), recorder.addresses(source))]


def _scatter(recorder: Recorder, target: Tensor, dim: int, index: Tensor, source: Any) -> Moves:
    values, places = recorder.addresses(source), target.gather(dim, index)
    if values.dim():
        values = values[tuple(slice(n) for n in index.shape)]
    return [("put", places, values.expand(places.shape))]


def _scatter_reduce(
    recorder: Recorder,
    target: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Moves:
    ops = {"sum": "scatter_add", "amax": "scatter_max", "amin": "scatter_min"}
    if reduce not in ops:
        raise NotRecordedError(f"`scatter_reduce` by {reduce} has no instructions")
    values = recorder.addresses(source)[tuple(slice(n) for n in index.shape)]
    places = target.gather(dim, index)
    found: Moves = []
    if not include_self:
        once = places.unique()
        found.append(("put", once, recorder.addresses(MERGED[ops[reduce]]).expand(once.shape)))
    return [*found, (ops[reduce], places, values)]


SCATTER: dict[str, Callable[..., Moves]] = {
    **{"index_add": _index_add, "scatter_add": _scatter_add, "index_copy": _index_copy},
    **{"scatter": _scatter, "scatter_reduce": _scatter_reduce},
    **{"index_put": _index_put, "_index_put_impl": _index_put, "_unsafe_index_put": _index_put},
}
