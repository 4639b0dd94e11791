"""Rows in the order of their members: what a family multiplies is aggregated in that order."""

from __future__ import annotations

from inspect import unwrap
from typing import NamedTuple

import torch
from torch.fx import Node

from edgewise.kernels.edges import EdgeIndex, Grouping, edge_index, grouping
from edgewise.kernels.edges.operators import linear_by_group
from edgewise.physical.lowering import Lowering, input_node, set_args
from edgewise.physical.passes.gathers import segment_mean, segment_sum

SUM, MEAN = unwrap(segment_sum), unwrap(segment_mean)


class Between(NamedTuple):
    """The same reductions and products, whose rows in between are in the order of members."""

    first: EdgeIndex
    groups: Grouping
    last: EdgeIndex


def order_by_member(plan: Lowering) -> int:
    """sum(W[t] · mean(x)) → the same with the rows of each member side by side, so that products
    read and write them where they are."""
    if plan.device.type != "cpu":
        return 0
    changed = 0
    for node in plan.nodes(linear_by_group):
        source, reader = _source(node), _reader(node)
        held = node.kwargs["index"]
        assert isinstance(held, Node)
        groups: Grouping = plan.constants[str(held.target)]
        if source is None or reader is None or groups.is_sorted or groups.padded is not None:
            continue
        placed = [plan.constants[str(input_node(end, 1).target)] for end in (source, reader)]
        found = _between(plan, groups, *placed)
        set_args(source, (source.args[0], _placed(plan, source, found.first)))
        node.kwargs = {"index": _placed(plan, node, found.groups)}
        last = _placed(plan, reader, found.last)
        set_args(reader, (reader.args[0], last, *reader.args[2:]))
        changed += 1
    return changed


def _placed(plan: Lowering, node: Node, thing: EdgeIndex | Grouping) -> Node:
    with plan.rewriting(node):
        return plan.constant(thing)


def _source(node: Node) -> Node | None:
    """The reduction, without a scale, whose rows alone are multiplied."""
    read = input_node(node, 0)
    while len(read.users) == 1 and read.target not in (SUM, MEAN) and _keeps_rows(read):
        read = input_node(read, 0)
    is_reduction = read.target in (SUM, MEAN) and len(read.args) == 2 and not read.kwargs
    if not is_reduction or len(read.users) > 1:
        return None
    alike = read.meta["like"].shape == input_node(node, 0).meta["like"].shape
    return read if alike else None


def _reader(node: Node) -> Node | None:
    """The sum, which alone reads the products."""
    while len(node.users) == 1:
        shape, (user,) = node.meta["like"].shape, node.users
        if user.target in (SUM, MEAN):
            return user if user.args[0] is node and len(shape) == 2 else None
        if user.target != "reshape":
            return None
        node = user
    return None


def _keeps_rows(node: Node) -> bool:
    """A reshape, or the only part along the axis of samples."""
    if node.target == "reshape":
        return True
    if node.target == "unbind":
        return node.args[1:] == (0,) and input_node(node, 0).meta["like"].shape[0] == 1
    return getattr(node.target, "__name__", "") == "getitem" and input_node(node, 0).target == (
        "unbind"
    )


def _between(plan: Lowering, groups: Grouping, first: EdgeIndex, last: EdgeIndex) -> Between:
    def find() -> Between:
        places = groups.places.long()
        ids, rows = places[first.rows.ids.long()], first.rows.index.long()
        order = ids.argsort(stable=True)
        before = edge_index(ids[order], rows[order], len(places), first.columns.segments)
        before.mean_scales  # noqa: B018
        reads = places[last.rows.index.long()]
        after = edge_index(last.rows.ids.long(), reads, last.rows.segments, len(places))
        after.mean_scales  # noqa: B018
        members = torch.arange(groups.members).repeat_interleave(groups.ptr.diff())
        return Between(before, grouping(members, groups.members), after)

    key = ("member order", id(groups), id(first), id(last))
    found: Between = plan.analyse(key, find, groups, first, last)
    return found
