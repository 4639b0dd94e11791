"""Checks of what is given to `attention`, and the shapes that kernels see."""

from numbers import Real

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import whole
from edgewise.graphs.errors import NotAPattern, SizeMismatch
from edgewise.graphs.families import per_head
from edgewise.graphs.full import full
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.contract import DTYPES, Case
from edgewise.kernels.attention.errors import (
    AttentionShape,
    BadOption,
    GraphLength,
    UnsupportedDevice,
    UnsupportedDtype,
)


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in DTYPES or x.dtype != q.dtype:
            raise UnsupportedDtype(
                f"`{name}` is {_short(x.dtype)}" + _unlike(x.dtype, q.dtype),
                caller(),
                "give all three as float32, bfloat16, float16 or (on a CPU) float64",
            )
        if x.device.type not in ("cpu", "cuda") or x.device != q.device:
            raise UnsupportedDevice(
                f"`{name}` is on {x.device}" + _unlike(x.device, q.device),
                caller(),
                "move all three to one CPU or CUDA device",
            )
        if x.ndim < 2 or x.ndim != q.ndim:
            raise AttentionShape(
                f"`{name}` has shape {tuple(x.shape)}, `q` has {tuple(q.shape)}",
                caller(),
                "give (..., heads, tokens, features), as many axes in all three",
            )
    _check_fit(q, k, v)


def _check_fit(q: Tensor, k: Tensor, v: Tensor) -> None:
    def wrong(what: str, a: object, b: object, fix: str) -> AttentionShape:
        return AttentionShape(f"{what} differ: {a} and {b}", caller(), fix)

    if q.shape[-1] != k.shape[-1]:
        raise wrong(
            "the features of `q` and `k`", q.shape[-1], k.shape[-1], "q·k needs as many of each"
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


def check_graph(graph: object, heads: int) -> Pattern | per_head:
    if graph is None:
        return full()
    if isinstance(graph, per_head) and len(graph) != heads:
        raise GraphLength(
            f"the graph has {len(graph)} patterns, `q` has {heads} heads",
            caller(),
            "give one pattern per query head",
        )
    if not isinstance(graph, Pattern | per_head):
        raise NotAPattern(
            f"expected a pattern, got {type(graph).__name__}",
            caller(),
            "write one of `edgewise.graphs`, such as `window(3)`, or `from_edges(...)`",
        )
    return graph


def build_case(
    tensors: tuple[Tensor, Tensor, Tensor], graph: Pattern, scale: float, offset: int
) -> Case:
    """The case of tensors as kernels see them, of shapes (b, g, n, d), (b, m, d), (b, m, dv)."""
    q, _, v = tensors
    b, g, n, d = q.shape
    if whole(offset, "offset"):
        graph = graph.shift(-offset, 0)
    m, dv = v.shape[-2:]
    case = Case(b, g, n, m, d, dv, q.dtype, q.device.type, graph, scale)
    try:
        case.pairs  # noqa: B018
    except SizeMismatch as error:
        raise GraphLength(
            f"`q` has {n} tokens and `k` has {m}: {error.message}", caller(), error.help
        ) from None
    return case


def check_dropout(dropout: float) -> float:
    if not isinstance(dropout, Real) or not 0 <= dropout < 1:
        raise BadOption(
            f"`dropout` must be from 0 to below 1, got {dropout!r}", caller(), "write such as 0.1"
        )
    return float(dropout)


def check_per_head(graph: Pattern | per_head, *, edge_bias: bool, weights: bool) -> None:
    if isinstance(graph, per_head) and (edge_bias or weights):
        raise BadOption(
            f"`{'edge_bias' if edge_bias else 'return_weights'}` needs one graph, here each head "
            "has its own",
            caller(),
            "call `attention` once for each graph",
        )


def check_lengths(lengths: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    """One number of keys for each element of the batch, on the device of `q`."""
    assert lengths is not None
    given = torch.as_tensor(lengths, device=q.device)
    if given.shape != q.shape[:-3] or given.is_floating_point():
        raise AttentionShape(
            f"`lengths` has shape {tuple(given.shape)} and {_short(given.dtype)}, "
            f"the batch is {tuple(q.shape[:-3])}",
            caller(),
            "give one whole number of keys for each element of the batch",
        )
    if given.numel() and (int(given.min()) < 0 or int(given.max()) > k.shape[-2]):
        raise BadOption(
            f"`lengths` must be from 0 to {k.shape[-2]}, got {given.tolist()}",
            caller(),
            "count the keys of each element of the batch",
        )
    return given


def grouped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As kernels see them: (b, g, n, d), (b, m, d), (b, m, dv)."""
    if q.ndim == 2:
        q, k, v = q[None], k[None], v[None]
    heads, shared = q.shape[-3], max(k.shape[-3], 1)
    q = q.unflatten(-3, (k.shape[-3], heads // shared)).flatten(0, -4)
    return q, k.flatten(0, -3), v.flatten(0, -3)


def bias_for(bias: Tensor, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """`bias` with every axis of `shape`; the axes after the heads may stay 1."""
    if bias.device != like.device:
        raise UnsupportedDevice(
            f"`{name}` is on {bias.device}, `q` on {like.device}", caller(), "move it there"
        )
    try:
        torch.broadcast_shapes(bias.shape, shape)
    except RuntimeError:
        fits = False
    else:
        fits = bias.ndim <= len(shape)
    if not fits or bias.is_complex():
        raise AttentionShape(
            f"`{name}` has shape {tuple(bias.shape)}, which does not broadcast to {shape}",
            caller(),
            "give one number per pair, or axes of length 1",
        )
    if bias.dtype == torch.bool:
        bias = torch.zeros(bias.shape, device=bias.device).masked_fill(~bias, -torch.inf)
    return bias[(None,) * (len(shape) - bias.ndim)].to(like.dtype)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _unlike(this: object, that: object) -> str:
    return "" if this == that else f", `q` is {str(that).removeprefix('torch.')}"
