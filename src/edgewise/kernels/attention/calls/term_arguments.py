"""Checks of what changes the scores of `attention`: biases, terms of edges, tables and lengths."""

from types import FunctionType

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from edgewise.errors import caller
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.calls.arguments import article, check_strided, short
from edgewise.kernels.attention.errors import (
    AttentionShape,
    BadOption,
    UnsupportedDevice,
    UnsupportedDtype,
)
from edgewise.scores import library
from edgewise.scores.score import BadScore, S, Score

_COPIES = WeakTensorKeyDictionary()  # table → device → (what it was, the copy)
_CHECKED = WeakTensorKeyDictionary()  # lengths → their version, and what they were checked against
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def scores_of(bias: Tensor | Score | None, score: Score | None) -> tuple[Tensor | None, Score]:
    """The bias of pairs, and the score with all that is written as one."""
    if score is not None and not isinstance(score, Score):
        raise BadScore(
            f"`score` must be a score, got {article(type(score).__name__)}",
            caller(),
            _called(score)
            or "write one of `edgewise.scores`, such as `softcap(50.0)` or `S + alibi(8)`",
        )
    if bias is not None and (help := _called(bias)) is not None:
        raise BadScore(
            f"`bias` must be a tensor or a score, got {article(type(bias).__name__)}",
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
    if x in vars(library).values():
        return f"call it, such as `{x.__name__}(...)`"
    return "write it of S, I, J and H of `edgewise.scores`: `S - abs(I - J)`, `softcap(50.0)`"


def check_lengths(lengths: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    """One number of keys for each element of the batch, on the device of `q`. A tensor that was
    checked against as many keys and has not changed is not read: that would wait for the GPU."""
    if type(lengths) is not Tensor or lengths.is_meta or lengths.is_inference():
        return _checked_lengths(lengths, q, k)
    seen = (lengths._version, q.shape[:-3], k.shape[-2], q.device)
    if _CHECKED.get(lengths) != seen:
        counts = _checked_lengths(lengths, q, k)
        if counts is not lengths:
            return counts
        _CHECKED[lengths] = seen
    return lengths


def _checked_lengths(lengths: object, q: Tensor, k: Tensor) -> Tensor:
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
            f"`lengths` has shape {tuple(counts.shape)} and {short(counts.dtype)}, "
            f"the batch is {tuple(q.shape[:-3])}",
            caller(),
            "give one integer, the number of keys, for each element of the batch",
        )
    if counts.is_meta or not counts.numel():
        return counts
    low, high = torch.stack(torch.aminmax(counts)).tolist()  # one wait for both
    if low < 0 or high > k.shape[-2]:
        raise BadOption(
            f"`lengths` must be from 0 to {k.shape[-2]}, got {counts.tolist()}",
            caller(),
            "count the keys of each element of the batch",
        )
    return counts


def check_term(term: object, name: str, q: Tensor, device: torch.device) -> None:
    """A term of scores: real numbers, where `q` is."""
    check_strided(term, name)
    assert isinstance(term, Tensor)
    if term.dtype == torch.bool and name.startswith(("bias", "edge_bias")):
        raise UnsupportedDtype(
            f"`{name}` is bool, which would be added as 0 and 1",
            caller(),
            "a mask is a graph: `attention(q, k, v, graphs.from_dense(mask))`; of numbers, give "
            "floats",
        )
    if term.is_complex():
        raise UnsupportedDtype(
            f"`{name}` is {short(term.dtype)}", caller(), "give real numbers: a score is one"
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


def constants_at(tables: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Tables of a score on a device; those that are learned are there already."""
    return tuple([x if x.device == device else _copied(x, device) for x in tables])


def _copied(table: Tensor, device: torch.device) -> Tensor:
    """A copy, which is made again where the table is not what it was: its version does not count
    changes of `.data`."""
    copies = _COPIES.setdefault(table, {})
    before, copy = copies.get(device, (None, table))
    if before is None or not torch.equal(before, table):
        before, copy = copies[device] = (table.clone(), table.to(device))
    return copy
