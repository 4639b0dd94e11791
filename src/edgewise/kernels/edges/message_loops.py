"""Sums of messages and their gradients by the machine code of their expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.edges.messages import ALL, EDGE, MessageIndex, Messages
from edgewise.kernels.edges.reference import wide
from edgewise.kernels.threads import spread

NUMBER = np.int64
NEAR = 1 << 21  # bytes, which a cache of a core holds the rows of


def sums(messages: Messages, leaves: Sequence[Tensor], index: MessageIndex) -> tuple[Tensor, ...]:
    """y_s of each message."""
    kind, way = wide(leaves[0].dtype), index.ways[0]
    rows = [_rows(leaf, kind) for leaf in leaves]
    width = max(leaf.shape[1] for leaf in rows)
    out = [rows[0].new_empty(way.rows.results, width) for _ in messages.outputs]
    _run(messages, index, 0, (), [*rows, *out], width)
    return tuple(way.rows.summed(y).to(leaves[0].dtype) for y in out)


def gradients(
    messages: Messages,
    leaves: Sequence[Tensor],
    grads: Sequence[Tensor],
    wanted: Sequence[int],
    index: MessageIndex,
) -> dict[int, Tensor]:
    """Those of the wanted leaves, one loop along each end that has some."""
    kind = wide(leaves[0].dtype)
    rows, outer = ([_rows(x, kind) for x in tensors] for tensors in (leaves, grads))
    by_end: dict[int, list[int]] = {}
    for leaf in wanted:
        if messages.leaves[leaf].end not in (EDGE, ALL):
            by_end.setdefault(int(messages.leaves[leaf].end), []).append(leaf)
    ends = sorted(by_end)
    others = [leaf for leaf in wanted if messages.leaves[leaf].end in (EDGE, ALL)]
    if others:  # any loop passes all edges
        by_end.setdefault(ends[0] if ends else 0, []).extend(others)
    found: dict[int, Tensor] = {}
    for end, some in by_end.items():
        way = index.ways[end].rows
        shapes = [
            (index.edges if messages.leaves[at].end == EDGE else way.results, rows[at].shape[1])
            for at in some
        ]
        out = [rows[0].new_empty(*shape) for shape in shapes]
        _run(messages, index, end, tuple(some), [*rows, *outer, *out], outer[0].shape[1])
        for at, x in zip(some, out, strict=True):
            match messages.leaves[at].end:
                case "e":
                    found[at] = x
                case "*":
                    found[at] = way.summed(x).sum(0, keepdim=True)
                case _:
                    found[at] = way.summed(x)
    return {at: x.to(leaves[0].dtype) for at, x in found.items()}


def _rows(x: Tensor, kind: torch.dtype) -> Tensor:
    """In the precision of sums, the numbers of a row side by side."""
    x = x.detach().to(kind)
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


def _run(
    messages: Messages,
    index: MessageIndex,
    end: int,
    wanted: tuple[int, ...],
    tensors: Sequence[Tensor],
    width: int,
) -> None:
    way, numbers = index.ways[end], index.edges * width * len(tensors)
    run_loop(messages, end, wanted, way.integers, tensors, width, numbers)


def run_loop(
    messages: Messages,
    along: int,
    wanted: tuple[int, ...],
    integers: Sequence[Tensor],
    tensors: Sequence[Tensor],
    width: int,
    numbers: int,
) -> None:
    """Over all pieces, the first of the integers; `numbers` are read."""
    from edgewise.kernels.edges.message_code import FIXED, KNOWN, Loop, compiled

    known = width if width <= KNOWN else 0
    ends, bits = len(integers) - FIXED, 8 * integers[0].element_size()
    far = sum(t.nbytes for t in tensors) > NEAR
    loop = compiled(Loop(messages, along, ends, wanted, tensors[0].dtype, known, bits, far))
    pointers = np.array([t.data_ptr() for t in (*integers, *tensors)], NUMBER)
    strides = np.array([t.stride(0) for t in tensors], NUMBER)
    call = pointers.ctypes.data, strides.ctypes.data, width
    spread(loop, [call], integers[0].numpy(), numbers=numbers)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "segment_messages": sums,
    "message_gradients": gradients,
}
