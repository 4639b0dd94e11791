"""The shapes that torch functions give: rules for the common ones, else a run on meta tensors.

A meta tensor takes torch a tenth of a millisecond for most functions, and a layer has dozens.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention

from edgewise.kernels.attention.flash import fused
from edgewise.layouts.recorded import INTEGERS as SIZES
from edgewise.layouts.recorded import Length, recorder
from edgewise.physical.symbols import Symbol

META = torch.device("meta")
OF_EACH = {"add", "sub", "mul", "div", "true_divide", "neg", "exp", "log", "sqrt", "tanh", "relu"}
OF_EACH |= {"sigmoid", "square", "abs", "gelu", "silu", "leaky_relu", "dropout"}
OF_EACH |= {"layer_norm", "rms_norm", "__rsub__", "__rtruediv__", "rsub", "maximum", "minimum"}
OF_EACH |= {"_safe_softmax"}
VIEWS = {"reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute"}
VIEWS |= {"expand", "__getitem__", "split", "unbind", "chunk", "narrow", "to", "expand_as"}
VIEWS |= {"split_with_sizes"}
INTEGERS = {torch.bool, torch.int32, torch.int64}
MANY = 1 << 14
_KNOWN: dict[Any, Any] = {}  # what functions gave for other tensors of the same shapes


def described(shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A meta tensor; it is never written, so values of one shape share it."""
    here = recorder()
    if here is not None and any(type(size) is Length for size in shape):
        found: Tensor = here.symbolic(shape, dtype)
        return found
    return _described(shape, dtype)


@lru_cache(MANY)
def _described(shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


def like_result(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    meta: Callable[[Any], Any],
) -> Any:
    """Meta tensors like the results of a call; `meta` makes arguments such tensors."""
    name = getattr(func, "__name__", "")
    rule = _OF_FUNCTIONS.get(func) or _OF_NAMES.get(name)
    if rule is not None and (found := rule(name, args, kwargs)) is not None:
        return found
    with torch._C.DisableTorchFunctionSubclass():
        key = None if name in VIEWS else _key(func, args, kwargs)
        if key is not None and key in _KNOWN:
            return _made(_KNOWN[key])
        found = func(*meta(args), **meta(kwargs))
        if key is not None and (isinstance(found, Tensor) or type(found) in (tuple, list)):
            if len(_KNOWN) > MANY:
                _KNOWN.clear()
            _KNOWN[key] = _description(found)
        return found


# rules: the result of a function by its name and arguments, None where torch says


def _linear(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    x, matrix = args[:2]
    return described((*x.shape[:-1], matrix.shape[0]), x.dtype)


def _selected(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    x, axis, rows = args
    shape = x.shape
    axis %= len(shape)
    return described((*shape[:axis], rows.shape[0], *shape[axis + 1 :]), x.dtype)


def _embedded(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    rows, table = args[:2]
    return described((*rows.shape, table.shape[1]), table.dtype)


def _attended(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Torch would make all pairs of it."""
    q, k, v = args[:3]
    lead = broadcast(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    return described((*lead, q.shape[-2], v.shape[-1]), q.dtype)


def _like_first(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return described(args[0].shape, args[0].dtype)


def _new(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """A tensor of some lengths, in the precision of another."""
    x, *rest = args
    sizes = rest[0] if isinstance(rest[0], tuple) else tuple(rest)
    known = not kwargs and all(type(size) in SIZES for size in sizes)
    return described(tuple(sizes), x.dtype) if known else None


def _multiplied(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """A matrix product; torch refuses those that do not fit."""
    a, b = (x.shape for x in args)
    fits = min(len(a), len(b)) > 1 and a[-1] == b[-2] and args[0].dtype == args[1].dtype
    if not fits:
        return None
    return described((*broadcast(a[:-2], b[:-2]), a[-2], b[-1]), args[0].dtype)


def _concatenated(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Tensors that are alike but for one axis; torch refuses others."""
    tensors, axis = args if len(args) == 2 else (args[0], kwargs.get("dim", 0))
    first = tensors[0]
    rank, shapes = first.ndim, [tuple(t.shape) for t in tensors]
    if not -rank <= axis < rank or any(t.dtype != first.dtype for t in tensors):
        return None
    axis %= rank
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        return None
    if any(len(shape) != rank for shape in shapes):
        return None
    total = sum(shape[axis] for shape in shapes)
    return described((*shapes[0][:axis], total, *shapes[0][axis + 1 :]), first.dtype)


def _summed(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Floats summed over one axis."""
    x = args[0]
    if len(args) != 2 or type(args[1]) is not int or not x.is_floating_point():
        return None
    if kwargs.keys() - {"keepdim"} or not -x.ndim <= args[1] < x.ndim:
        return None
    shape, axis = x.shape, args[1] % x.ndim
    middle = (1,) if kwargs.get("keepdim") else ()
    return described((*shape[:axis], *middle, *shape[axis + 1 :]), x.dtype)


def _view(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """A reshape to lengths that are all there, or a cast; torch does others, and refuses them."""
    x, *rest = args
    if name == "to":
        cast = len(rest) == 1 and isinstance(rest[0], torch.dtype) and rest[0] != x.dtype
        return described(x.shape, rest[0]) if cast else None
    shape = tuple(rest[0]) if len(rest) == 1 and isinstance(rest[0], tuple | list) else tuple(rest)
    open = [at for at, size in enumerate(shape) if type(size) is int and size == -1]
    if len(open) == 1 and all(type(size) in SIZES for size in shape):
        others = math.prod(size for size in shape if not (type(size) is int and size == -1))
        if others > 0 and x.numel() % others == 0:
            shape = (*shape[: open[0]], x.numel() // others, *shape[open[0] + 1 :])
    known = bool(rest) and all(type(size) in SIZES and size >= 0 for size in shape)
    return described(shape, x.dtype) if known and math.prod(shape) == x.numel() else None


def _unflattened(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """One axis as several whose lengths are all there."""
    if kwargs or len(args) != 3 or type(args[1]) is not int:
        return None
    x, axis, sizes = args
    known = all(type(size) in SIZES and size >= 0 for size in sizes)
    if not known or not -x.ndim <= axis < x.ndim or math.prod(sizes) != x.shape[axis]:
        return None
    axis %= x.ndim
    return described((*x.shape[:axis], *sizes, *x.shape[axis + 1 :]), x.dtype)


def _flattened(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Several axes as one."""
    x, first, last = (*args, 0, -1)[:3] if len(args) == 1 else (*args, -1)[:3]
    known = type(first) is int and type(last) is int and not kwargs
    if not known or not all(-x.ndim <= axis < x.ndim for axis in (first, last)):
        return None
    first, last = first % x.ndim, last % x.ndim
    if first > last:
        return None
    middle = math.prod(x.shape[first : last + 1])
    return described((*x.shape[:first], middle, *x.shape[last + 1 :]), x.dtype)


def _expanded(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Axes of length 1 repeated, and more axes before them."""
    x, *rest = args
    sizes = tuple(rest[0]) if len(rest) == 1 and isinstance(rest[0], tuple | list) else tuple(rest)
    if kwargs or len(sizes) < x.ndim or not all(type(size) in SIZES for size in sizes):
        return None
    new = len(sizes) - x.ndim
    found = list(sizes)
    for at, own in enumerate(x.shape, new):
        if sizes[at] == -1:
            found[at] = own
        elif own != 1 and own != sizes[at]:
            return None
    return described(tuple(found), x.dtype) if all(size >= 0 for size in found) else None


def _reordered(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Axes in another order; torch refuses those that are not there."""
    x, axes = args[0], _leaves(args[1:])
    rank = x.ndim
    if kwargs or not all(type(axis) is int and -rank <= axis < rank for axis in axes):
        return None
    order = _order(name, rank, axes)
    if sorted(order) != list(range(rank)):
        return None
    shape = x.shape
    return described(tuple([shape[axis] for axis in order]), x.dtype)


def _moved(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """One axis in another place."""
    x, *axes = args
    rank = x.ndim
    known = len(axes) == 2 and all(type(axis) is int and -rank <= axis < rank for axis in axes)
    if kwargs or not known:
        return None
    shape = list(x.shape)
    shape.insert(axes[1] % rank, shape.pop(axes[0]))
    return described(tuple(shape), x.dtype)


def _order(name: str, rank: int, axes: Sequence[int]) -> list[int]:
    """What `transpose` or `permute` makes of the axes."""
    order = list(range(rank))
    if name == "permute":
        return [order[axis] for axis in axes]
    first, second = axes
    order[first], order[second] = order[second], order[first]
    return order


def _of_each(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """A result with the shape in which all tensors meet, if those of floats have one precision:
    integers beside them are converted to it."""
    tensors = [a.like if type(a) is Symbol else a for a in args if isinstance(a, Tensor)]
    first = tensors[0]
    if not first.is_floating_point():
        return None
    if any(t.dtype != first.dtype and t.dtype not in INTEGERS for t in tensors[1:]):
        return None
    if len(tensors) == 1:
        return described(first.shape, first.dtype)
    return described(broadcast(*(t.shape for t in tensors)), first.dtype)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """`torch.broadcast_shapes`, which takes its time and has the errors.

    >>> broadcast((4, 1), (3,))
    (4, 3)
    """
    found = [1] * max(map(len, shapes))
    for shape in shapes:
        for at, size in enumerate(reversed(shape), 1):
            if size != 1 and found[-at] != size:
                if found[-at] != 1:
                    return torch.broadcast_shapes(*shapes)
                found[-at] = size
    return tuple(found)


_OF_NAMES: dict[str, Callable[..., Tensor | None]] = {
    **dict.fromkeys(OF_EACH, _of_each),
    **dict.fromkeys(("reshape", "view", "to"), _view),
    **dict.fromkeys(("transpose", "permute"), _reordered),
    **dict.fromkeys(("index_add", "index_copy", "scatter_add"), _like_first),
    **dict.fromkeys(("matmul", "__matmul__"), _multiplied),
    "movedim": _moved,
    "unflatten": _unflattened,
    "flatten": _flattened,
    "expand": _expanded,
    "new_zeros": _new,
    "new_full": _new,
    "cat": _concatenated,
    "sum": _summed,
    "linear": _linear,
    "index_select": _selected,
}
_OF_FUNCTIONS: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
    embedding: _embedded,
    fused: _attended,
    scaled_dot_product_attention: _attended,
}


def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        key = (func, _description(args), _description(tuple(kwargs.items())))
        hash(key)
    except TypeError:
        return None
    return key


def _description(item: Any) -> Any:
    match item:
        case Tensor():
            return item.shape, item.dtype
        case tuple() | list():
            return type(item), *map(_description, item)
        case float():
            return float
    return item


def _made(known: Any) -> Any:
    if isinstance(known[0], type):
        return known[0](map(_made, known[1:]))
    return described(*known)


# values that keep their elements in their order are all reshapes of one

RESHAPES = {"reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze"}


IN_ORDER = {*RESHAPES, operator.getitem, "expand", "transpose", "permute"}  # may keep it


def keeps_order(target: Any, args: tuple[Any, ...], after: Any) -> bool:
    """Whether a call of a method (by name), or of `getitem`, keeps all elements in their order."""
    before: Tensor = args[0].like
    if not isinstance(after, Tensor) or before.dtype != after.dtype:
        return False
    if target in RESHAPES:
        return True
    if before.numel() != after.numel():
        return False
    if target is operator.getitem:
        return all(i is None or isinstance(i, int | slice) for i in _leaves(args[1]))
    return target == "expand" or _in_order(target, before.shape, args[1:])


def _in_order(method: str, shape: torch.Size, axes: tuple[Any, ...]) -> bool:
    """Whether axes of length 1 alone change their places."""
    order = _order(method, len(shape), _leaves(axes))
    long = [axis for axis in order if shape[axis] != 1]
    return long == sorted(long)


def _leaves(item: Any) -> list[Any]:
    if isinstance(item, tuple | list):
        return [leaf for part in item for leaf in _leaves(part)]
    return [item]
