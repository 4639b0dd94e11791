"""Gathers that need no materialised rows: as views, in products of matrices, in segment kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce
from inspect import unwrap
from operator import mul
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from edgewise.functions import DEFINITIONS, Law
from edgewise.kernels import edges
from edgewise.kernels.edges import EdgeIndex, edge_index, segment_index
from edgewise.kernels.edges.registry import EdgeOperation, note_choice
from edgewise.layouts.ragged import Segments
from edgewise.physical.functions import aggregate_segments
from edgewise.physical.lowering import Lowering, input_node, to_device
from edgewise.physical.opaque import opaque
from edgewise.physical.passes.rows import FEWER, MANY, Gather, gather_of, numbered

AGGREGATE = unwrap(aggregate_segments)

# strided views


LEAST = 64  # rows, below which one index_select is as good


@dataclass(frozen=True)
class Strides:
    """Place (a, b) of a grid of `outer` × `inner` reads row a · steps[0] + b · steps[1]."""

    outer: int
    inner: int
    steps: tuple[int, int]

    def __call__(self, x: Tensor) -> Tensor:
        rest = x.shape[2:]
        if self.steps == (1, 0):
            wide = x.unsqueeze(2).expand(-1, -1, self.inner, *rest)
        elif self.steps == (0, 1):
            wide = x.unsqueeze(1).expand(-1, self.outer, -1, *rest)
        else:
            wide = x.reshape(len(x), self.inner, self.outer, *rest).transpose(1, 2)
        return wide.reshape(len(wide), self.outer * self.inner, *rest)


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows, from the `first`."""

    first: int
    count: int

    def __call__(self, x: Tensor) -> Tensor:
        return x.narrow(1, self.first, self.count)


def strides_of(rows: Tensor, size: int) -> Strides | Stretch | None:
    """How a grid reads the `size` rows of a source; None where it takes an index.

    >>> strides_of(torch.arange(3).repeat_interleave(4), 3)
    Strides(outer=3, inner=4, steps=(1, 0))
    >>> strides_of(torch.arange(6).view(2, 3).T.flatten(), 6)
    Strides(outer=3, inner=2, steps=(1, 3))
    >>> strides_of(torch.arange(2, 5), 6)
    Stretch(first=2, count=3)
    """
    rows = rows.cpu()
    if 0 < len(rows) < size:
        first = int(rows[0])
        one = torch.equal(rows, torch.arange(first, first + len(rows)))
        return Stretch(first, len(rows)) if one else None
    if size < 2 or len(rows) < size or len(rows) % size:
        return None
    times = len(rows) // size
    if times > 1:
        found = [Strides(size, times, (1, 0)), Strides(times, size, (0, 1))]
    else:
        outer = int(rows[1])
        found = [Strides(outer, size // outer, (1, outer))] if outer and not size % outer else []
    for way in found:
        a, b = torch.arange(way.outer)[:, None], torch.arange(way.inner)
        if torch.equal((a * way.steps[0] + b * way.steps[1]).flatten(), rows):
            return way
    return None


def strided_views(plan: Lowering) -> int:
    """gather(x, index) → a view of x, where the index is a regular stride."""
    changed = 0
    for node in plan.nodes("index_select"):
        gather = gather_of(plan, node)
        if gather is None or plan.usual(len(gather.rows)) < LEAST:
            continue
        rows, size = gather.rows, gather.size
        way = plan.analyse(("strides", id(rows), size), partial(strides_of, rows, size), rows)
        if way is not None:
            with plan.rewriting(node):
                plan.replace(node, way(plan.symbol(gather.base)))
            changed += 1
    return changed


# gathers of gathers


def merge_gathers(plan: Lowering) -> int:
    """gather(gather(x, a), b) → gather(x, a[b])."""
    changed = 0
    for node in plan.nodes("index_select"):
        outer = gather_of(plan, node)
        if outer is None:
            continue
        inner = _inner_gather(plan, outer)
        if inner is None:
            continue
        a, b = inner.rows, outer.rows
        rows = plan.analyse(("gathers", id(a), id(b)), partial(a.index_select, 0, b), a, b)
        with plan.rewriting(node):
            shape = outer.base.meta["like"].shape
            base = plan.symbol(inner.base).reshape(shape[0], inner.size, *shape[2:])
            plan.replace(node, base.index_select(1, rows))
        changed += 1
    return changed


def _inner_gather(plan: Lowering, outer: Gather) -> Gather | None:
    """The gather whose rows are those that another gather reads."""
    base, rows = outer.base, outer.base.meta["like"].shape[:2]
    while base.target == "reshape" and base.meta["like"].shape[:2] == rows:
        base = input_node(base, 0)
    return gather_of(plan, base) if base.meta["like"].shape[:2] == rows else None


# dot products

MORE = 2  # numbers in the products for each grounding, at most
PART = 8  # or one for as many features of a row: two rows of them would be materialised
MOST = 16  # however many those are
SOME = 64  # groundings, which mostly tell already that rows are in no blocks


@dataclass(frozen=True, eq=False)
class Dots:
    """`index` says which number of the products each grounding takes.

    Rows of both sides come in `blocks`, and those of one block meet each other only.
    """

    blocks: int
    index: Tensor
    each: float  # numbers in the products for each grounding

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        a, b = (x.unflatten(1, (self.blocks, -1)) for x in (left, right))
        return (b @ a.mT).flatten(1).index_select(1, self.index)


def dots_as_products(plan: Lowering) -> int:
    """gather(a) · gather(b) → numbers of a bᵀ, where the product has about as many numbers.

    A score of distances, `aᵢⱼ = qᵢ · r(i - j)`, has a grounding for each pair and as many numbers
    in q · rᵀ; materialised, each grounding would read two vectors.
    """
    changed = 0
    for node in plan.nodes("sum"):
        sides = _dot(plan, node)
        if sides is None:
            continue
        left, right = (_used(plan, side) for side in sides)
        if max(left.size, right.size) >= len(left.places):
            continue

        def find(left: UsedRows = left, right: UsedRows = right) -> Dots | None:
            found = dots_of(left.places.cpu(), right.places.cpu(), left.size, right.size)
            return to_device(found, plan.device)

        key = ("dots", id(left.places), id(right.places), left.size, right.size)
        dots: Dots | None = plan.analyse(key, find, left.places, right.places)
        width = sides[0].base.meta["like"].shape[-1]
        if dots is not None and dots.each <= max(MORE, width / PART):
            with plan.rewriting(node):
                a, b = (
                    u.of(plan.symbol(g.base)) for u, g in zip((left, right), sides, strict=True)
                )
                found = dots(a, b)
                plan.replace(node, found.reshape(*found.shape, 1))
            changed += 1
    return changed


@dataclass(frozen=True, eq=False)
class UsedRows:
    """The rows of a source that groundings read, all if None, and which of them each has."""

    rows: Tensor | None
    places: Tensor
    size: int

    def of(self, source: Tensor) -> Tensor:
        return source if self.rows is None else source.index_select(1, self.rows)


def _used(plan: Lowering, gather: Gather) -> UsedRows:
    """Those that are read, where they are much fewer than all."""

    def find() -> UsedRows:
        places, size = numbered(gather.rows, gather.size)
        if size * FEWER > gather.size:
            return UsedRows(None, gather.rows, gather.size)
        rows = torch.empty(size, dtype=torch.int64, device=places.device)
        return UsedRows(rows.index_copy_(0, places, gather.rows), places, size)

    key = ("used", id(gather.rows), gather.size)
    found: UsedRows = plan.analyse(key, find, gather.rows)
    return found


def _dot(plan: Lowering, node: Node) -> tuple[Gather, Gather] | None:
    """The gathers whose rows a node multiplies and sums."""
    of_all = node.args[1:] == (-1,) and node.kwargs == {"keepdim": True}
    times: Any = node.args[0] if of_all else None
    if times is None or times.target != "mul" or times.meta["like"].ndim != 3:
        return None
    left, right = (gather_of(plan, argument) for argument in times.args)
    if left is None or right is None or plan.usual(len(left.rows)) < MANY:
        return None
    shapes = {side.base.meta["like"].shape[2:] for side in (left, right)}
    return (left, right) if len(shapes) == 1 else None


def dots_of(left: Tensor, right: Tensor, many: int, others: int) -> Dots | None:
    """How groundings take their dot products, if the products hold little more than those."""
    count = len(left)
    for blocks in _divisors(math.gcd(many, others)):
        each = many * others / (blocks * count)
        if each > max(MORE, MOST):
            return None  # fewer blocks are larger
        a, b = many // blocks, others // blocks
        if not torch.equal(left[:SOME] // a, right[:SOME] // b):
            continue
        block = left // a
        if torch.equal(block, right // b):
            return Dots(blocks, (block * b + right % b) * a + left % a, each)
    return None


def _divisors(number: int) -> Iterator[int]:
    """From the largest on."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    yield from (number // n for n in small)
    yield from (n for n in reversed(small) if n * n != number)


# segment kernels


def _segments(x: Tensor, which: EdgeIndex, *_: Any, **options: Any) -> Tensor:
    operation = "segment_extreme" if "largest" in options else "segment_sum"
    note_choice(EdgeOperation(operation, x.shape[1], x.dtype, x.device.type))
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
# torch gathers and adds up to so many rows, of so many numbers, in that time
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
    rows, numbers = plan.usual(shape[:2].numel()), plan.usual(shape.numel())
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
        and shape.numel() <= LARGEST
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
    return found.reshape(len(found), batch, *value).transpose(0, 1)


def _in_samples(
    averages: bool, each: Tensor, scale: Tensor, which: EdgeIndex, value: torch.Size
) -> Tensor:
    """The same where every sample has scales of its own."""
    batch, rest = len(scale), each.shape[1:]
    flat = each.expand(batch, *rest).reshape(batch * rest[0], rest[1])
    found = segment_sum(flat, which.repeated(batch), scale.flatten())
    found = found.reshape(batch, which.rows.segments, *value)
    if averages:
        found = found / which.rows.ptr.diff().reshape(-1, *(1,) * len(value))
    return found
