"""Dot products of gathered rows: entries of one matrix product, or of a kernel along edges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from edgewise.kernels import edges
from edgewise.kernels.edges import EdgeIndex, edge_index
from edgewise.kernels.edges.registry import EdgeOperation, note_choice
from edgewise.physical.lowering import Lowering, to_device
from edgewise.physical.opaque import opaque
from edgewise.physical.passes.gathers import LARGEST
from edgewise.physical.passes.rows import FEWER, MANY, Gather, gather_of, numbered

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


def _edges(y: Tensor, x: Tensor, which: EdgeIndex) -> Tensor:
    note_choice(EdgeOperation("edge_dots", x.shape[1], x.dtype, x.device.type))
    return torch.empty(which.edges, dtype=x.dtype, device="meta")


@opaque(like=_edges, operators=lambda y, x, which: edges.edge_dots(y, x, index=which))
def edge_dots(y: Tensor, x: Tensor, which: EdgeIndex) -> Tensor:
    found: Tensor = edges.edge_dots(y, x, index=which)
    return found


@dataclass(frozen=True, eq=False)
class DotsAlongEdges:
    """Edges from rows of the left side to rows of the right, or back if they are `turned`.

    `places` says which edge each grounding is, None if they are in one order.
    """

    which: EdgeIndex
    turned: bool
    places: Tensor | None

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        """From (batch, rows, d) to (batch, groundings)."""
        batch = max(len(left), len(right))
        y, x = (side.expand(batch, *side.shape[1:]).flatten(0, 1) for side in (left, right))
        which = self.which if batch == 1 else self.which.repeated(batch)
        found = edge_dots(*(x, y) if self.turned else (y, x), which).reshape(batch, -1)
        return found if self.places is None else found.index_select(1, self.places)


def dots_along_edges(plan: Lowering) -> int:
    """gather(a) · gather(b) → a kernel that reads the rows of a and b where they are."""
    changed = 0
    for node in plan.nodes("sum"):
        sides = _dot(plan, node)
        if sides is None or node.meta["like"].numel() > LARGEST:
            continue
        left, right = sides

        def find(left: Gather = left, right: Gather = right) -> DotsAlongEdges:
            ends = [(gather.rows.cpu(), gather.size) for gather in (left, right)]
            return to_device(along_edges(*ends), plan.device)

        key = ("edge dots", id(left.rows), id(right.rows), left.size, right.size)
        dots: DotsAlongEdges = plan.analyse(key, find, left.rows, right.rows)
        with plan.rewriting(node):
            found = dots(plan.symbol(left.base), plan.symbol(right.base))
            plan.replace(node, found.reshape(*found.shape, 1))
        changed += 1
    return changed


def along_edges(left: tuple[Tensor, int], right: tuple[Tensor, int]) -> DotsAlongEdges:
    """The rows that each grounding reads on both sides, of so many.

    >>> found = along_edges((torch.tensor([1, 0, 2]), 3), (torch.tensor([2, 0, 1]), 3))
    >>> found.which.rows.index.tolist(), found.turned, found.places.tolist()
    ([0, 2, 1], False, [1, 0, 2])
    """
    for turned, (ids, rows) in enumerate(((left, right), (right, left))):
        if bool((ids[0][1:] >= ids[0][:-1]).all()):
            return DotsAlongEdges(edge_index(ids[0], rows[0], ids[1], rows[1]), bool(turned), None)
    order = left[0].argsort(stable=True)
    places = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
    which = edge_index(left[0][order], right[0][order], left[1], right[1])
    return DotsAlongEdges(which, False, places)


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
