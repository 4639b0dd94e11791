"""Sums and means are moved: before products, into sums of sums, into all rows of a relation.

Σ W·x is W·Σ x, a product for each rule head instead of each row; Σ_i Σ_j x is one sum; and a sum
that is added to the rows of another part has a row for each of them, 0 where it has no grounding.
"""

from __future__ import annotations

from functools import partial
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn.functional import linear

from edgewise.functions import DEFINITIONS
from edgewise.layouts.ragged import Segments
from edgewise.physical.functions import aggregate_segments
from edgewise.physical.lowering import Lowering, input_node
from edgewise.physical.merge import added_at
from edgewise.physical.passes.gathers import AGGREGATE, is_scale
from edgewise.physical.passes.rows import gather_of

SUM = "sum_agg"
FEWER = 2  # rows for each rule head, from which on the product comes after the sum


def aggregate_first(plan: Lowering) -> int:
    """aggregate(linear(gather(x), W) [· scalar]) → linear(aggregate(gather(x) [· scalar]), W), for
    sums and means of many more rows than there are rule heads."""
    changed = 0
    for node in plan.nodes(AGGREGATE):
        data, name, parts = node.args
        assert isinstance(data, Node)
        assert isinstance(parts, Node)
        found = _product(data)
        if found is None or DEFINITIONS[str(name)].kernel not in ("sum", "mean"):
            continue
        product, scales = found
        gather = gather_of(plan, product.args[0])
        segments: Segments = plan.constants[str(parts.target)]
        if gather is None or FEWER * segments.count > min(gather.size, gather.rows.shape[0]):
            continue
        with plan.rewriting(node):
            x: Any = plan.symbol(input_node(product, 0))
            for scale in scales:
                x = x * plan.symbol(scale)
            total = aggregate_segments(x, str(name), segments)
            plan.replace(node, linear(total, plan.symbol(input_node(product, 1))))
        changed += 1
    return changed


def merge_aggregates(plan: Lowering) -> int:
    """sum(sum(x)) → sum(x), and mean(sum(x)) → sum(x) / counts, where the inner sums have no other
    user: they are never materialised."""
    changed = 0
    for node in plan.nodes(AGGREGATE):
        kernel, inner = _kernel(node), _sole_aggregate(node.args[0])
        if kernel not in ("sum", "mean") or inner is None or _kernel(inner) != "sum":
            continue
        outer, parts = _segments(plan, node), _segments(plan, inner)
        one = _renumbered(plan, parts, outer.ids, outer.count)
        with plan.rewriting(node):
            total = aggregate_segments(plan.symbol(input_node(inner, 0)), str(inner.args[1]), one)
            if kernel == "mean":
                counts = plan.analyse(("counts", id(outer)), partial(_counts, outer), outer)
                total = total / counts.reshape(-1, *(1,) * (total.ndim - 2))
            shape = node.meta["like"].shape
            plan.replace(node, total.reshape(total.shape[0], *shape[1:]))
        changed += 1
    return changed


def fill_rows(plan: Lowering) -> int:
    """`rows + W·sum(x)` at the rows that have a sum → at all of them, where most have one: rows are
    added without an index. The same for means."""
    changed = 0
    for node in plan.nodes(unwrap(added_at)):
        out, at = input_node(node, 0), plan.constants.get(str(input_node(node, 1).target))
        found, rows = _linear_of_aggregate(node.args[2]), out.meta["like"].shape[1]
        if found is None or at is None or FEWER * at.shape[0] < rows:
            continue
        steps, inner = found
        parts = _segments(plan, inner)
        every = _renumbered(plan, parts, at, rows)
        with plan.rewriting(inner):
            total = aggregate_segments(plan.symbol(input_node(inner, 0)), SUM, every)
            if _kernel(inner) == "mean":
                counts = plan.analyse(("counts", id(every)), partial(_counts, every), every)
                total = total / counts.reshape(-1, *(1,) * (total.ndim - 2))
        with plan.rewriting(node):
            for step in steps:
                if step.target is linear:
                    total = linear(total, plan.symbol(input_node(step, 1)))
                else:
                    total = total.reshape(total.shape[0], rows, *step.meta["like"].shape[2:])
            plan.replace(node, plan.symbol(out) + total)
        changed += 1
    return changed


def _kernel(node: Node) -> str | None:
    return DEFINITIONS[str(node.args[1])].kernel


def _segments(plan: Lowering, node: Node) -> Segments:
    found: Segments = plan.constants[str(input_node(node, 2).target)]
    return found


def _sole_aggregate(node: Any) -> Node | None:
    """An aggregation with one user, whose values may have got another shape."""
    while isinstance(node, Node) and node.target == "reshape" and len(node.users) == 1:
        inner = input_node(node, 0)
        if inner.meta["like"].shape[:2] != node.meta["like"].shape[:2]:
            return None
        node = inner
    plain = isinstance(node, Node) and node.target is AGGREGATE and len(node.users) == 1
    return node if plain else None


def _linear_of_aggregate(node: Any) -> tuple[list[Node], Node] | None:
    """A sum or mean with one user, and what is done to its rows: they get other shapes, and are
    multiplied by matrices, which leave 0 as it is."""
    steps: list[Node] = []
    while isinstance(node, Node) and len(node.users) == 1:
        if node.target == "reshape":
            if input_node(node, 0).meta["like"].shape[:2] != node.meta["like"].shape[:2]:
                return None
        elif not _is_product(node):
            break
        steps.append(node)
        node = input_node(node, 0)
    plain = isinstance(node, Node) and node.target is AGGREGATE and len(node.users) == 1
    return (steps[::-1], node) if plain and _kernel(node) in ("sum", "mean") else None


def _is_product(node: Node) -> bool:
    """Whether it is that of rows with a matrix, without a bias and other users."""
    plain = node.target is linear and len(node.users) == 1 and len(node.args) == 2
    return plain and node.kwargs.get("bias") is None


def _renumbered(plan: Lowering, parts: Segments, numbers: Tensor, count: int) -> Segments:
    """Segment s as segment numbers[s] of `count`, of which some may have no rows."""

    def find() -> Segments:
        ids = numbers[parts.ids]
        return Segments(count, ids, None, bool((ids[1:] >= ids[:-1]).all()))

    key = ("renumbered", id(parts), id(numbers), count)
    found: Segments = plan.analyse(key, find, parts, numbers)
    return found


def _counts(segments: Segments) -> Tensor:
    return torch.bincount(segments.ids, minlength=segments.count).clamp(min=1)


def _product(data: Node) -> tuple[Node, list[Node]] | None:
    """A product of rows with a matrix, without other users, and the scalars it is scaled by."""
    scales: list[Node] = []
    while data.target == "mul" and len(data.users) == 1:
        factors = [
            (a, b)
            for a, b in (data.args, data.args[::-1])
            if is_scale(b, data) or _is_number(b, data)
        ]
        if not factors:
            return None
        data, scale = factors[0]  # type: ignore[assignment]
        scales.append(scale)  # type: ignore[arg-type]
    if not _is_product(data):
        return None
    width = input_node(data, 0).meta["like"].shape
    return (data, scales) if len(width) == 3 else None


def _is_number(node: Any, product: Node) -> bool:
    """Whether a factor is one scalar for all groundings."""
    shape = node.meta["like"].shape if isinstance(node, Node) else ()
    return len(shape) == product.meta["like"].ndim and all(size == 1 for size in shape[1:])
