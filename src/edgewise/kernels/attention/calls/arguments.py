"""Checks of the tensors, graph and options of `attention`, and the shapes that kernels see."""

import math
import warnings
from collections.abc import Iterator
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from edgewise.errors import caller
from edgewise.graphs.algebra import pattern_instead
from edgewise.graphs.checks import integer
from edgewise.graphs.errors import NotAPattern, SizeMismatch
from edgewise.graphs.families import Family, per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.full import full
from edgewise.kernels.attention.calls.trace_names import constant
from edgewise.kernels.attention.contract import DTYPES, Case, EdgeTerm, allows_tf32
from edgewise.kernels.attention.errors import (
    AttentionShape,
    BadOption,
    GraphLength,
    PairsCountedOnce,
    UnknownKernel,
    UnsupportedDevice,
    UnsupportedDtype,
    refuse_dtensor,
)


def check_tensors(
    q: Tensor, k: Tensor, v: Tensor, device: torch.device | None = None
) -> torch.device:
    """The device of the call: that of the tensors, or the one for which they are meta tensors."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_strided(x, name)
    device = q.device if device is None else device
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in DTYPES or x.dtype != q.dtype:
            raise UnsupportedDtype(
                f"`{name}` is {short(x.dtype)}" + _unlike(x.dtype, q.dtype),
                caller(),
                "give all three as float32, bfloat16, float16 or (on a CPU) float64",
            )
        known = device.type in ("cpu", "cuda") and (x.is_meta or x.device == device)
        if not known or x.device != q.device:
            raise UnsupportedDevice(
                f"`{name}` is on {x.device}" + _unlike(x.device, q.device),
                caller(),
                "move all three to one CPU or CUDA device",
            )
        if x.ndim < 2 or x.ndim != q.ndim:
            raise AttentionShape(
                f"`{name}` has shape {tuple(x.shape)}" + _unlike(tuple(x.shape), tuple(q.shape)),
                caller(),
                "give (..., heads, tokens, features), as many axes in all three",
            )
    _check_fit(q, k, v)
    return device


def check_strided(x: object, name: str) -> None:
    if not isinstance(x, Tensor):
        raise UnsupportedDtype(
            f"`{name}` is {article(type(x).__name__)}, not a tensor", caller(), "give a tensor"
        )
    if type(x) not in (Tensor, Parameter):
        refuse_dtensor(x, name)
    if x.layout != torch.strided or x.is_nested:
        kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise UnsupportedDtype(
            f"`{name}` is {kind}, not a plain tensor",
            caller(),
            "give it dense; samples of different sizes go with `documents(...)` or `lengths=`",
        )


def article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def _check_fit(q: Tensor, k: Tensor, v: Tensor) -> None:
    def wrong(what: str, a: object, b: object, fix: str) -> AttentionShape:
        return AttentionShape(f"{what} differ: {a} and {b}", caller(), fix)

    if q.shape[-1] != k.shape[-1]:
        raise wrong(
            "the features of `q` and `k`", q.shape[-1], k.shape[-1], "give both the same number"
        )
    if k.shape[:-1] != v.shape[:-1]:
        shapes = tuple(k.shape[:-1]), tuple(v.shape[:-1])
        raise wrong("the shapes of `k` and `v`", *shapes, "each key needs one value")
    if q.shape[:-3] != k.shape[:-3]:
        shapes = tuple(q.shape[:-3]), tuple(k.shape[:-3])
        raise wrong("the batches of `q` and `k`", *shapes, "expand the smaller one")
    if q.ndim > 2 and (k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]) and q.shape[-3]:
        raise wrong(
            "the heads of `q` and `k`",
            q.shape[-3],
            k.shape[-3],
            "query heads must be a multiple of key heads",
        )


def check_graph(graph: object) -> Pattern | per_head | per_sample:
    if graph is None:
        return full()
    if not isinstance(graph, Pattern | per_head | per_sample):
        raise NotAPattern(
            f"expected a pattern, got {type(graph).__name__}",
            caller(),
            pattern_instead(graph),
        )
    return graph


def build_case(
    tensors: tuple[Tensor, Tensor, Tensor], graph: Pattern, scale: float, device: str
) -> Case:
    """The case of tensors as kernels see them, of shapes (b, g, n, d), (b, m, d), (b, m, dv)."""
    q, _, v = tensors
    b, g, n, d = q.shape
    m, dv = v.shape[-2:]
    rounded = allows_tf32(q.dtype, device)
    case = Case(b, g, n, m, d, dv, q.dtype, device, graph, scale, tf32=rounded)
    try:
        case.pairs  # noqa: B018
    except SizeMismatch as error:
        raise _wrong_length(error) from None
    return case


def pairs_of(graph: Pattern, n: int, m: int, offset: int) -> int:
    """How many pairs a case of the graph has."""
    try:
        return (graph.shift(-offset, 0) if integer(offset, "offset") else graph).count(n, m)
    except SizeMismatch as error:
        raise _wrong_length(error) from None


def _wrong_length(error: SizeMismatch) -> GraphLength:
    return GraphLength(error.message, caller(), error.help)


def check_dropout(dropout: float) -> float:
    if isinstance(dropout, bool) or not isinstance(dropout, Real) or not 0 <= dropout < 1:
        raise BadOption(
            f"`dropout` must be from 0 to below 1, got {dropout!r}",
            caller(),
            "give, for example, 0.1",
        )
    return float(dropout)


def check_scale(scale: float | None) -> None:
    if scale is not None and not _is_finite(scale):
        raise BadOption(
            f"`scale` must be a finite number, got {scale!r}",
            caller(),
            "leave it out for 1/√d; a learned scale belongs to `q`, or to `score=`",
        )


def _is_finite(value: object) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # of an integer beyond floats
        return False


def check_kernel(kernel: str | None) -> None:
    if kernel is not None and not isinstance(kernel, str):
        raise UnknownKernel(
            f"`kernel` must be a name, got {kernel!r}",
            caller(),
            'give, for example, kernel="blocks"',
        )


def check_flag(flag: bool, name: str) -> None:
    if not isinstance(flag, bool):
        raise BadOption(
            f"`{name}` must be True or False, got {article(type(flag).__name__)}",
            caller(),
            "write True or False",
        )


@constant
def refuse_weights() -> None:
    """What a trace calls, as Python, if it requests weights."""
    raise BadOption(
        "`return_weights` does not work in a trace: how many there are, the graph decides",
        caller(),
        "use `return_lse=True`, or leave this call out of `torch.compile`",
    )


def grouped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As kernels see them: (b, g, n, d), (b, m, d), (b, m, dv)."""
    if q.ndim == 2:
        q, k, v = q[None], k[None], v[None]
    heads, shared = q.shape[-3], max(k.shape[-3], 1)
    b = math.prod(k.shape[:-2])
    q = q.reshape(b, heads // shared, *q.shape[-2:])
    return q, k.reshape(b, *k.shape[-2:]), v.reshape(b, *v.shape[-2:])


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _unlike(this: object, that: object) -> str:
    return "" if this == that else f", `q` is {str(that).removeprefix('torch.')}"


def warn_counted_once(graph: Pattern | Family[Any], edge_bias: EdgeTerm | None) -> None:
    """Say so where pairs that should count more than once are about to count once."""
    odd = next((one for one in _patterns(graph) if one.counts_twice), None)
    if odd is not None and edge_bias is None:
        place = caller()
        warning = PairsCountedOnce(
            f"`{odd!r}` was published with some pairs counted more than once; here each is once",
            place,
            "give `edge_bias=graph.log_bias(n)` for the published numbers",
        )
        warnings.warn_explicit(warning, None, place.span.file, place.span.line)


def counts_twice(graph: Pattern | Family[Any]) -> bool:
    return any(one.counts_twice for one in _patterns(graph))


def _patterns(graph: Pattern | Family[Any]) -> Iterator[Pattern]:
    if isinstance(graph, Pattern):
        yield graph
    else:
        for one in graph:
            yield from _patterns(one)
