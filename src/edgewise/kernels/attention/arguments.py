"""Checks of the arguments of `attention`, and the shapes that kernels see."""

import math
import sys
import warnings
from collections.abc import Iterator
from numbers import Real
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakTensorKeyDictionary

from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.errors import NotAPattern, SizeMismatch
from edgewise.graphs.families import Family, per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.full import full
from edgewise.kernels.attention.contract import DTYPES, Case, EdgeTerm
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
from edgewise.kernels.attention.trace_names import constant
from edgewise.scores.score import BadScore, S, Score

_COPIES = WeakTensorKeyDictionary()  # table → device → (what it was, the copy)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


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
                f"`{name}` is {_short(x.dtype)}" + _unlike(x.dtype, q.dtype),
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
            f"`{name}` is {_article(type(x).__name__)}, not a tensor", caller(), "give a tensor"
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


def _article(word: str) -> str:
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
            "write one of `edgewise.graphs`, such as `window(3)`, or `from_edges(...)`",
        )
    return graph


def build_case(
    tensors: tuple[Tensor, Tensor, Tensor], graph: Pattern, scale: float, device: str
) -> Case:
    """The case of tensors as kernels see them, of shapes (b, g, n, d), (b, m, d), (b, m, dv)."""
    q, _, v = tensors
    b, g, n, d = q.shape
    m, dv = v.shape[-2:]
    case = Case(b, g, n, m, d, dv, q.dtype, device, graph, scale)
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
    known = isinstance(scale, Real) and not isinstance(scale, bool)
    known = known and abs(scale) <= sys.float_info.max  # type: ignore[arg-type]
    if scale is not None and not known:
        raise BadOption(
            f"`scale` must be a finite number, got {scale!r}",
            caller(),
            "leave it out for 1/√d; a learned scale belongs to `q`, or to `score=`",
        )


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
            f"`{name}` must be True or False, got {_article(type(flag).__name__)}",
            caller(),
            "write True or False",
        )


def scores_of(bias: Tensor | Score | None, score: Score | None) -> tuple[Tensor | None, Score]:
    """The bias of pairs, and the score with all that is written as one."""
    if score is not None and not isinstance(score, Score):
        raise BadScore(
            f"`score` must be a score, got {_article(type(score).__name__)}",
            caller(),
            _called(score)
            or "write one of `edgewise.scores`, such as `softcap(50.0)` or `S + alibi(8)`",
        )
    if bias is not None and (help := _called(bias)) is not None:
        raise BadScore(
            f"`bias` must be a tensor or a score, got {_article(type(bias).__name__)}",
            caller(),
            help,
        )
    combined = S if score is None else score
    if isinstance(bias, Score):
        return None, combined + bias
    return bias, combined


def _called(x: object) -> str | None:
    """What to do with a function that makes a score."""
    if isinstance(x, Tensor | Score) or not isinstance(x, FunctionType | type):
        return None
    return f"call it, such as `{x.__name__}(...)`"


@constant
def refuse_weights() -> None:
    """What a trace calls, as Python, if it requests weights."""
    raise BadOption(
        "`return_weights` does not work in a trace: how many there are, the graph decides",
        caller(),
        "use `return_lse=True`, or leave this call out of `torch.compile`",
    )


def check_lengths(lengths: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    """One number of keys for each element of the batch, on the device of `q`."""
    try:
        counts = torch.as_tensor(lengths, device=q.device)
    except (TypeError, ValueError, RuntimeError):
        raise BadOption(
            f"`lengths` must be integers, got {lengths!r}",
            caller(),
            "give one integer, the number of keys, for each element of the batch",
        ) from None
    if counts.shape != q.shape[:-3] or counts.dtype not in INTEGERS:
        raise AttentionShape(
            f"`lengths` has shape {tuple(counts.shape)} and {_short(counts.dtype)}, "
            f"the batch is {tuple(q.shape[:-3])}",
            caller(),
            "give one integer, the number of keys, for each element of the batch",
        )
    known = counts.numel() and not counts.is_meta
    if known and (int(counts.min()) < 0 or int(counts.max()) > k.shape[-2]):
        raise BadOption(
            f"`lengths` must be from 0 to {k.shape[-2]}, got {counts.tolist()}",
            caller(),
            "count the keys of each element of the batch",
        )
    return counts


def grouped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As kernels see them: (b, g, n, d), (b, m, d), (b, m, dv)."""
    if q.ndim == 2:
        q, k, v = q[None], k[None], v[None]
    heads, shared = q.shape[-3], max(k.shape[-3], 1)
    b = math.prod(k.shape[:-2])
    q = q.reshape(b, heads // shared, *q.shape[-2:])
    return q, k.reshape(b, *k.shape[-2:]), v.reshape(b, *v.shape[-2:])


def check_term(term: object, name: str, q: Tensor, device: torch.device) -> None:
    """A term of scores: real numbers, where `q` is."""
    check_strided(term, name)
    assert isinstance(term, Tensor)
    if term.is_complex():
        raise UnsupportedDtype(
            f"`{name}` is {_short(term.dtype)}", caller(), "give real numbers: a score is one"
        )
    if term.device not in (q.device, device):
        raise UnsupportedDevice(
            f"`{name}` is on {term.device}, `q` on {q.device}", caller(), "move it there"
        )


def check_terms(graph: object, terms: tuple[object, ...], q: Tensor, device: torch.device) -> None:
    """Those of pairs and edges; where graphs differ, those of edges are lists with one for each."""
    names = ("bias", "edge_bias", "edge_scale", "edge_key", "edge_value")
    for name, term in zip(names, terms, strict=True):
        if term is not None:
            listed = name != "bias" and not isinstance(graph, Pattern)
            (_check_each if listed else check_term)(term, name, q, device)


def _check_each(term: object, name: str, q: Tensor, device: torch.device) -> None:
    if isinstance(term, list | tuple):
        for number, one in enumerate(term):
            _check_each(one, f"{name}[{number}]", q, device)
    elif isinstance(term, Tensor):
        check_term(term, name, q, device)


def check_broadcast(term: Tensor, name: str, shape: tuple[int, ...]) -> None:
    try:
        fits = torch.broadcast_shapes(term.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise AttentionShape(
            f"`{name}` has shape {tuple(term.shape)}, which does not broadcast to {shape}",
            caller(),
            "give one number per pair, or axes of length 1",
        )


def as_bias(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as a bias of 0 and -∞."""
    if bias.dtype == torch.bool:
        bias = torch.zeros(bias.shape, device=bias.device).masked_fill(~bias, -torch.inf)
    return bias.to(dtype)


def check_table(table: Tensor, q: Tensor) -> None:
    """A table of a score: one row, one for each head, or for all of a batch."""
    lead = q.shape[:-2] if q.ndim > 2 else (1,)
    try:
        fits = torch.broadcast_shapes(table.shape[:-1], lead) == torch.Size(lead)
    except RuntimeError:
        fits = False
    if not fits:
        raise AttentionShape(
            f"a table of the score has shape {tuple(table.shape)}, `q` has {lead[-1]} heads",
            caller(),
            "give shape (length,), or (heads, length) for one row per head",
        )


def table_rows(table: Tensor, lead: tuple[int, ...]) -> Tensor:
    """A table of a score as (rows, length), for heads of shape `lead`."""
    table = table.reshape(*(1,) * (len(lead) + 1 - table.ndim), *table.shape)
    if all(size == 1 for size in table.shape[:-2]):
        return table.reshape(table.shape[-2:])
    return table.expand(*lead, -1).reshape(-1, table.shape[-1])


def check_learned(tables: tuple[Tensor, ...], q: Tensor, device: torch.device) -> None:
    """Tables that are learned must be where the call is; constants follow it, but for those
    without numbers."""
    for table in tables:
        stays = table.requires_grad or table.is_meta
        if stays and table.device not in (q.device, device):
            raise UnsupportedDevice(
                f"a table of the score is on {table.device}, `q` on {q.device}",
                caller(),
                "move it there",
            )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _unlike(this: object, that: object) -> str:
    return "" if this == that else f", `q` is {str(that).removeprefix('torch.')}"


def warn_counted_once(graph: Pattern | Family[Any], edge_bias: EdgeTerm | None) -> None:
    """Say so where pairs that should count more than once are about to count once."""
    odd = next((one for one in _patterns(graph) if one.counts_twice), None)
    if odd is not None and edge_bias is None:
        place = caller()
        warning = PairsCountedOnce(
            f"`{odd!r}` counts some pairs more than once where it was published, here once",
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


def constants_at(tables: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Tables of a score on a device; those that are learned are there already."""
    return tuple([x if x.device == device else _copied(x, device) for x in tables])


def _copied(table: Tensor, device: torch.device) -> Tensor:
    """A copy, which is made anew where the table is not what it was: its version does not count
    changes of `.data`."""
    copies = _COPIES.setdefault(table, {})
    before, copy = copies.get(device, (None, table))
    if before is None or not torch.equal(before, table):
        before, copy = copies[device] = (table.clone(), table.to(device))
    return copy
