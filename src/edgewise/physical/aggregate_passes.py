"""Aggregate before products: Σ W·x is W·Σ x, a product for each rule head instead of each row."""

from __future__ import annotations

from typing import Any

from torch.fx import Node
from torch.nn.functional import linear

from edgewise.functions import DEFINITIONS
from edgewise.layouts.ragged import Segments
from edgewise.physical.functions import aggregate_segments
from edgewise.physical.gather_passes import AGGREGATE, is_scale
from edgewise.physical.lowering import Lowering, input_node
from edgewise.physical.row_passes import gather_of

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
        if gather is None or FEWER * segments.count > min(gather.size, len(gather.rows)):
            continue
        with plan.rewriting(node):
            x: Any = plan.symbol(input_node(product, 0))
            for scale in scales:
                x = x * plan.symbol(scale)
            total = aggregate_segments(x, str(name), segments)
            plan.replace(node, linear(total, plan.symbol(input_node(product, 1))))
        changed += 1
    return changed


def _product(data: Node) -> tuple[Node, list[Node]] | None:
    """A product of rows with a matrix that nobody else reads, and the scalars it is scaled by."""
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
    plain = data.target is linear and len(data.users) == 1 and len(data.args) == 2
    if not plain or data.kwargs.get("bias") is not None:
        return None
    width = input_node(data, 0).meta["like"].shape
    return (data, scales) if len(width) == 3 else None


def _is_number(node: Any, product: Node) -> bool:
    """Whether a factor is one scalar for all groundings."""
    shape = node.meta["like"].shape if isinstance(node, Node) else ()
    return len(shape) == product.meta["like"].ndim and all(size == 1 for size in shape[1:])
