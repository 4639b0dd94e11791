"""Reductions of segments on a CPU: torch's embedding bags, and loops compiled by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.edges.index import EdgeIndex, SplitCSR
from edgewise.kernels.edges.message_loops import run_loop
from edgewise.kernels.edges.messages import Messages
from edgewise.kernels.edges.numba_attention import loop
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.threads import spread


def embedding_bag(
    x: Tensor, scale: Tensor | None, column_scale: Tensor | None, index: EdgeIndex
) -> Tensor:
    """`segment_sum`: vectorised, threaded, nothing materialised."""
    scale = None if scale is None else scale.to(x.dtype).contiguous()
    rows = index.rows
    found = _bags(x.contiguous(), scale, rows.index, rows.pieces)
    if not rows.is_split:
        return found
    (alone, segments), (parts, split) = rows.unsplit, rows.partial
    out = found.new_empty(rows.segments, x.shape[1])
    out.index_copy_(0, segments, found.index_select(0, alone))
    return out.index_copy_(0, split, _bags(found, None, parts, rows.split_ptr))


PLAIN, SCALED = "1w; 0", "1w es; 0 1 mul"


def segment_sum(
    x: Tensor, scale: Tensor | None, column_scale: Tensor | None, index: EdgeIndex
) -> Tensor:
    """A sum of messages, which are rows, or rows times a number."""
    rows, messages = index.rows, Messages.of(PLAIN if scale is None else SCALED)
    read = [_matrix(t.unsqueeze(1) if t.ndim == 1 else t) for t in (x, scale) if t is not None]
    out = x.new_empty(rows.results, x.shape[1])
    listed = rows.index if scale is None else rows.numbers
    integers = *rows.places, listed, rows.index, rows.index
    run_loop(messages, 0, (), integers, [*read, out], x.shape[1], rows.edges * x.shape[1])
    return rows.summed(out)


def _bags(x: Tensor, scale: Tensor | None, rows: Tensor, ptr: Tensor) -> Tensor:
    return torch.ops.aten._embedding_bag_forward_only(x, rows, ptr, False, 0, False, scale, True)[0]


def edge_dots(y: Tensor, x: Tensor, index: EdgeIndex) -> Tensor:
    kind, y, x = x.dtype, _matrix(y), _matrix(x)
    (d, one), out = (x.shape[1], x.numpy().dtype.type(1)), x.new_empty(index.edges)
    rows = [(t.view(-1).numpy(), 0, d, 0) for t in (y, x)]
    none, into = (rows[0][0][:0], 0, 0, 0), (out.numpy(), 0, 1, 0)
    _run("products", index.rows, x, (*rows, none, (1, d, d), one, into))
    return out.to(kind)


def segment_extreme(x: Tensor, largest: bool, index: EdgeIndex) -> tuple[Tensor, Tensor]:
    """Empty segments have -∞ (∞ for the smallest), and no edge has it."""
    rows, kind = index.rows, wide(x.dtype)
    out, ties = (x.new_empty(rows.results, x.shape[1], dtype=kind) for _ in range(2))
    tops, sign = out.numpy(), 1 if largest else -1
    _run(
        "segment_extreme", rows, x, (_matrix(x).numpy(), tops.dtype.type(sign), tops, ties.numpy())
    )
    if rows.is_split:
        _joined(rows, out, ties, largest)
        out, ties = out[: rows.segments], ties[: rows.segments]
    return out.to(x.dtype), ties.to(x.dtype)


def _joined(rows: SplitCSR, out: Tensor, ties: Tensor, largest: bool) -> None:
    """The extremes of split segments, and how many edges have them, from those of their parts."""
    starts, parts = rows.split_ptr.numpy()[:-1], out[rows.segments :].numpy()
    top = (np.maximum if largest else np.minimum).reduceat(parts, starts)
    same = parts == np.repeat(top, np.diff(rows.split_ptr.numpy()), axis=0)
    split = rows.split.long()
    out[split] = torch.from_numpy(top)
    ties[split] = torch.from_numpy(np.add.reduceat(ties[rows.segments :].numpy() * same, starts))


def equal_sum(a: Tensor, x: Tensor, y: Tensor, index: EdgeIndex) -> Tensor:
    rows = index.rows
    out = a.new_empty(rows.results, a.shape[1], dtype=wide(a.dtype))
    _run("equal_sum", rows, x, (*(_matrix(t).numpy() for t in (a, x, y)), out.numpy()))
    return rows.summed(out).to(a.dtype)


def _run(name: str, rows: SplitCSR, x: Tensor, arguments: tuple[Any, ...]) -> None:
    graph = rows.arrays
    spread(loop(name), [(graph, *arguments)], graph[0], numbers=rows.edges * x.shape[1])


def _matrix(x: Tensor) -> Tensor:
    """Contiguous, in the precision of sums."""
    return x.detach().to(wide(x.dtype)).contiguous()


OPERATIONS: dict[str, Callable[..., Any]] = {
    "segment_sum": segment_sum,
    "edge_dots": edge_dots,
    "segment_extreme": segment_extreme,
    "equal_sum": equal_sum,
}
