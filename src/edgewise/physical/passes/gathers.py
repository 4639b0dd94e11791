"""Fused gathers: segment kernels read the rows of a source, which are never materialised."""

from __future__ import annotations

import math
from functools import reduce
from inspect import unwrap
from operator import mul
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from edgewise.functions import DEFINITIONS, Law
from edgewise.kernels import edges
from edgewise.kernels.edges import EdgeIndex, edge_index, segment_index
from edgewise.kernels.edges.registry import EdgeOperation, note_choice, reads_many
from edgewise.layouts.ragged import Segments
from edgewise.physical.functions import aggregate_segments
from edgewise.physical.lowering import Lowering, to_device
from edgewise.physical.opaque import opaque
from edgewise.physical.passes.rows import MANY, gather_of

AGGREGATE = unwrap(aggregate_segments)


def _segments(x: Tensor, which: EdgeIndex, *_: Any, **options: Any) -> Tensor:
    operation = "segment_extreme" if "largest" in options else "segment_sum"
    many = reads_many(which, x.shape[1])
    note_choice(EdgeOperation(operation, x.shape[1], x.dtype, x.device.type, many))
    return torch.empty(which.rows.segments, x.shape[1], dtype=x.dtype, device="meta")


@opaque(like=_segments, operators=edges.segment_sum)
def segment_sum(x: Tensor, which: EdgeIndex, scale: Tensor | None = None) -> Tensor:
    return edges.segment_sum(x, which, None if scale is None else scale.to(x.dtype))


@opaque(like=_segments, operators=edges.segment_mean)
def segment_mean(x: Tensor, which: EdgeIndex) -> Tensor:
    return edges.segment_mean(x, which)


@opaque(like=_segments, operators=edges.segment_extreme)
def segment_extreme(x: Tensor, which: EdgeIndex, *, largest: bool) -> Tensor:
    return edges.segment_extreme(x, which, largest=largest)


LARGEST = (1 << 31) - 1  # entries that kernels count
# on a CPU a kernel costs 60 µs before its first row, as an autograd function with a prepared index:
# torch gathers and adds up to this many rows, of this many numbers, in that time
SMALL_ROWS, SMALL_NUMBERS = 1 << 10, 1 << 15


def fuse_gathers(plan: Lowering) -> int:
    """aggregate(gather(x) [· scalar]) → one kernel that reads the rows of x where they are."""
    changed = 0
    for node in plan.nodes(AGGREGATE):
        data, name, parts = node.args
        assert isinstance(data, Node)
        assert isinstance(name, str)
        assert isinstance(parts, Node)
        segments: Segments = plan.constants[str(parts.target)]
        if not segments.ordered:
            continue
        found = _gathered(plan, data, name, segments) or _runs(plan, data, name, segments)
        if found is not None:
            base, scales, which = found
            with plan.rewriting(node):
                factors = [plan.symbol(factor).flatten(1) for factor in scales]
                scale = reduce(mul, factors) if factors else None
                plan.replace(node, along(name, plan.symbol(base), which, scale))
            changed += 1
    return changed


Along = tuple[Node, list[Node], EdgeIndex]


def _gathered(plan: Lowering, data: Node, name: str, segments: Segments) -> Along | None:
    """The rows that are aggregated, the scalars that they are multiplied by, and the index."""
    scales: list[Node] = []
    gather = gather_of(plan, data)
    while gather is None and data.target == "mul":
        factors = [(a, b) for a, b in (data.args, data.args[::-1]) if is_scale(b, data)]
        if not factors:
            return None
        data, scale = factors[0]  # type: ignore[assignment]
        scales.append(scale)  # type: ignore[arg-type]
        gather = gather_of(plan, data)
    like = data.meta["like"]
    if gather is None or gather.size < 2 or like.ndim < 3:
        return None
    if plan.device.type == "cpu" and is_small(plan, like.shape):
        return None
    kernel = DEFINITIONS[name].kernel
    if scales and kernel not in ("sum", "mean"):
        return None
    rows, size = gather.rows, gather.size
    which = _index(plan, ("edges", id(segments), id(rows), size), segments, rows, size, kernel)
    return gather.base, scales, which


def is_small(plan: Lowering, shape: torch.Size) -> bool:
    rows, numbers = plan.usual(math.prod(shape[:2])), plan.usual(math.prod(shape))
    return rows < SMALL_ROWS and numbers < SMALL_NUMBERS


def is_scale(node: Any, product: Node) -> bool:
    """Whether a factor is one scalar for each grounding."""
    if not isinstance(node, Node):
        return False
    shape, full = node.meta["like"].shape, product.meta["like"].shape
    other = next(iter(n for n in product.all_input_nodes if n is not node), node)
    return (
        len(shape) == len(full) > 2
        and shape[1] == full[1]
        and all(n == 1 for n in shape[2:])
        and other.meta["like"].shape[1:] == full[1:]
        and math.prod(shape) <= LARGEST
    )


def _runs(plan: Lowering, data: Node, name: str, segments: Segments) -> Along | None:
    """Groundings side by side, where many are summed; torch adds up numbers well on a CPU, and
    rows nowhere."""
    like = data.meta["like"]
    rows = like.ndim > 2 or plan.device.type == "cuda"
    small = plan.usual(like.shape[1]) < MANY
    if segments.even or Law.LINEAR not in DEFINITIONS[name] or small or not rows:
        return None
    kernel = DEFINITIONS[name].kernel
    return data, [], _index(plan, ("runs", id(segments)), segments, None, 0, kernel)


def _index(
    plan: Lowering, key: Any, segments: Segments, rows: Tensor | None, size: int, kernel: Any
) -> EdgeIndex:
    def find() -> EdgeIndex:
        ids = segments.ids.cpu()
        if rows is None:
            found = segment_index(ids, segments.count)
        else:
            found = edge_index(ids, rows.cpu(), segments.count, size)
        if kernel == "mean":
            found.mean_scales  # noqa: B018
        return to_device(found, plan.device)

    return plan.analyse((*key, kernel == "mean"), find, segments, rows)


def along(name: str, base: Tensor, which: EdgeIndex, scale: Tensor | None = None) -> Tensor:
    """The aggregate of each segment of rows of (batch, rows, value...), each times a scalar of
    (batch, groundings)."""
    kernel, batch, value = DEFINITIONS[name].kernel, base.shape[0], base.shape[2:]
    each = base.flatten(2) if value else base.unsqueeze(2)
    if scale is not None and len(scale) != 1:
        return _in_samples(kernel == "mean", each, scale, which, value)
    flat = each.transpose(0, 1).flatten(1)
    if kernel in ("max", "min"):
        found = segment_extreme(flat, which, largest=kernel == "max")
    elif scale is None:
        found = (segment_mean if kernel == "mean" else segment_sum)(flat, which)
    else:
        found = segment_sum(flat, which, scale.squeeze(0))
        if kernel == "mean":
            found = found / which.rows.ptr.diff()[:, None]
    return found.reshape(found.shape[0], batch, *value).transpose(0, 1)


def _in_samples(
    averages: bool, each: Tensor, scale: Tensor, which: EdgeIndex, value: torch.Size
) -> Tensor:
    """The same where every sample has scales of its own."""
    batch, rest = scale.shape[0], each.shape[1:]
    flat = each.expand(batch, *rest).reshape(batch * rest[0], rest[1])
    found = segment_sum(flat, which.repeated(batch), scale.flatten())
    found = found.reshape(batch, which.rows.segments, *value)
    if averages:
        found = found / which.rows.ptr.diff().reshape(-1, *(1,) * len(value))
    return found
