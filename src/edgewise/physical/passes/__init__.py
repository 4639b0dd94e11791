"""Passes over the graph of a physical plan: each a function with a reason, in one order."""

from __future__ import annotations

import math
from inspect import unwrap
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.nn.functional import linear

from edgewise.functions import DEFINITIONS
from edgewise.kernels.small_products import Products
from edgewise.layouts.recorded import key_of
from edgewise.passes import GRAPH, Pass
from edgewise.physical.lowering import Lowering, create, input_node, is_weight, set_args
from edgewise.physical.opaque import opaque
from edgewise.physical.passes.aggregates import aggregate_first, fill_rows, merge_aggregates
from edgewise.physical.passes.dots import dots_along_edges, dots_as_products
from edgewise.physical.passes.equal_calls import merge_equal_calls
from edgewise.physical.passes.families import family_products
from edgewise.physical.passes.gathers import AGGREGATE, fuse_gathers
from edgewise.physical.passes.member_order import order_by_member
from edgewise.physical.passes.messages import fuse_messages
from edgewise.physical.passes.norms import fold_gains
from edgewise.physical.passes.rows import project_rows
from edgewise.physical.passes.views import merge_gathers, strided_views
from edgewise.physical.result_shapes import described


def fold_biases(plan: Lowering) -> int:
    """linear(x, W) + b → linear(x, W, b), for vectors that are weights."""
    changed = 0
    for node in plan.nodes("add"):
        if len(node.all_input_nodes) != 2:
            continue
        sides = input_node(node, 0), input_node(node, 1)
        for at, (total, vector) in enumerate((sides, sides[::-1])):
            product = _addend(total, node) if is_weight(vector) else None
            if product is None:
                continue
            shape, size = vector.meta["like"].shape, product.meta["like"].shape[-1]
            if math.prod(shape) != size or shape[-1] != size:
                continue
            with plan.rewriting(product):
                held = input_node(vector, 0) if vector.target == "reshape" else vector
                bias = plan.node(plan.lifted(plan.symbol(held).reshape(size)))
            set_args(product, (*product.args[:2], bias))
            node.replace_all_uses_with(input_node(node, at))
            plan.erase(node)
            changed += 1
            break
    return changed


def _addend(node: Node, total: Node) -> Node | None:
    """A matrix product without a bias or other users, among the terms of a sum."""
    if node.meta["like"].shape != total.meta["like"].shape or len(node.users) != 1:
        return None
    if node.target is linear:
        return node if _bias(node) is None else None
    if node.target == "reshape":  # of numbers, which are vectors of one
        inner = input_node(node, 0)
        alone = inner.target is linear and _bias(inner) is None and len(inner.users) == 1
        return inner if alone and inner.meta["like"].shape[-1] == 1 else None
    if node.target != "add":
        return None
    found = (_addend(part, total) for part in node.all_input_nodes)
    return next((product for product in found if product is not None), None)


@opaque(
    like=lambda x, *matrices: [
        torch.empty(*x.shape[:-1], len(m), dtype=x.dtype, device="meta") for m in matrices
    ],
    prepare=lambda *matrices: Products(matrices),
)
def products(x: torch.Tensor, *matrices: torch.Tensor) -> list[torch.Tensor]:
    """Rows times each of some matrices, which are read once for all."""
    return Products(matrices)(x)


def merge_projections(plan: Lowering) -> int:
    """Matrices that take the same rows are one product: linear(x, W₁), linear(x, W₂), ... →
    linear(x, (W₁, W₂, ...)), split."""
    graph, changed = plan.graph, 0
    for group in _projections(plan):
        if len(group) < 2:
            continue
        changed += len(group)
        with graph.inserting_before(group[0]):
            matrices = [_copied(graph, input_node(node, 1)) for node in group]
            sizes = [len(matrix.meta["like"]) for matrix in matrices]
            wide = _linear(graph, group, matrices, sizes)
            parts = create(graph, "call_method", "split_with_sizes", (wide, sizes, -1))
            parts.meta["of"] = wide.meta["of"]
            for at, node in enumerate(group):
                part = create(graph, "call_function", getitem, (parts, at))
                part.meta.update(node.meta)
                node.replace_all_uses_with(part)
        for node in group:
            graph.erase_node(node)
    return changed


def read_matrices_once(plan: Lowering) -> int:
    """For rows that are appended: linear(x, W₁), linear(x, W₂), ... by loops that read each matrix
    once."""
    graph, changed = plan.graph, 0
    for group in _projections(plan):
        x = group[0].args[0]
        changed += len(group)
        with graph.inserting_before(group[0]):
            matrices = [_copied(graph, input_node(node, 1)) for node in group]
            parts = create(graph, "call_function", unwrap(products), (x, *matrices))
            parts.meta["of"] = group[0].meta["of"]
            for at, node in enumerate(group):
                part = create(graph, "call_function", getitem, (parts, at))
                part.meta.update(node.meta)
                if _bias(node) is not None:
                    added = part, _copied(graph, _bias(node))
                    part = create(graph, "call_method", "add", added)
                    part.meta.update(node.meta)
                node.replace_all_uses_with(part)
        for node in group:
            graph.erase_node(node)
    return changed


# in order: biases are part of products when those move before gathers; gathers are fused where they
# are aggregated, and what is left of them may be views
ON_GRAPH = (
    Pass("fold biases", "a product and a vector added to it are one call", GRAPH, fold_biases),
    Pass(
        "aggregate first",
        "a sum of products with one matrix is a product of the sum",
        GRAPH,
        aggregate_first,
        reads_keys=True,
    ),
    Pass(
        "project rows",
        "weights are applied once per row, before rows are gathered",
        GRAPH,
        project_rows,
    ),
    Pass(
        "family products",
        "matrices of a family multiply all their rows at once",
        GRAPH,
        family_products,
        reads_keys=True,
    ),
    Pass(
        "merge aggregates",
        "a sum or mean of sums is one sum",
        GRAPH,
        merge_aggregates,
        reads_keys=True,
    ),
    Pass(
        "fill rows",
        "sums that most rows of a relation have are added to all of them",
        GRAPH,
        fill_rows,
        reads_keys=True,
    ),
    Pass(
        "merge gathers",
        "rows that are gathered twice are gathered once",
        GRAPH,
        merge_gathers,
        reads_keys=True,
    ),
    Pass(
        "dots as products",
        "dot products of rows that pairs share are entries of one matrix product",
        GRAPH,
        dots_as_products,
        reads_keys=True,
    ),
    Pass(
        "dots along edges",
        "dot products read rows where they are, not gathered before",
        GRAPH,
        dots_along_edges,
        reads_keys=True,
    ),
    Pass(
        "fuse messages",
        "what is aggregated is computed along the edges, by code of its expression",
        GRAPH,
        fuse_messages,
        reads_keys=True,
    ),
    Pass(
        "fuse gathers",
        "rows are aggregated where they are, not gathered before",
        GRAPH,
        fuse_gathers,
        reads_keys=True,
    ),
    Pass(
        "order by member",
        "what is multiplied by matrices of a family is aggregated in the order of its members",
        GRAPH,
        order_by_member,
        reads_keys=True,
    ),
    Pass(
        "merge equal calls",
        "what is computed twice from the same values is computed once",
        GRAPH,
        merge_equal_calls,
        reads_keys=True,
    ),
    Pass(
        "strided views",
        "a gather with a regular stride is a view",
        GRAPH,
        strided_views,
        reads_keys=True,
    ),
    Pass("fold gains", "a norm, its gain and its bias are one call", GRAPH, fold_gains),
    Pass(
        "merge projections",
        "projections of one relation are one matrix product",
        GRAPH,
        merge_projections,
        appending=False,
    ),
    Pass(
        "read matrices once",
        "when rows are appended, reading the matrices is what takes time",
        GRAPH,
        read_matrices_once,
        appending=True,
    ),
)


def optimise_graph(plan: Lowering, appending: bool) -> dict[str, int]:
    """Run the passes that are not left out, and rewrite what is left of aggregations to torch
    functions; how many places each changed."""
    changed = {}
    for step in ON_GRAPH:
        fits = step.appending in (None, appending) and (plan.reads_keys or not step.reads_keys)
        if fits and step.appending is not None:
            _collapse_reshapes(plan)  # products of the same rows are found by identity
        if fits and step.name not in plan.without:
            changed[step.name] = step.run(plan)
    _define_aggregations(plan)
    _collapse_reshapes(plan)
    return changed


def _define_aggregations(plan: Lowering) -> None:
    for node in plan.nodes(AGGREGATE):
        data, name, parts = input_node(node, 0), str(node.args[1]), input_node(node, 2)
        with plan.rewriting(node):
            segments = plan.constants[str(parts.target)]
            plan.replace(node, DEFINITIONS[name].columns(plan.symbol(data), segments))


def _collapse_reshapes(plan: Lowering) -> None:
    """A reshape of a reshape is one of what that reads, none at all to the shape it has, and the
    same as an equal one before it."""
    known: dict[Any, Node] = {}
    for node in plan.nodes("reshape"):
        read, shape = input_node(node, 0), node.meta["like"].shape
        while read.target == "reshape":
            read = input_node(read, 0)
        if read.meta["like"].shape == shape:
            same = read
        else:
            same = known.setdefault((read, *map(key_of, shape)), node)
        if same is not node:
            node.replace_all_uses_with(same)
            plan.erase(node)
        elif read is not node.args[0]:
            node.args = (read, node.args[1])


def _projections(plan: Lowering) -> list[list[Node]]:
    """The products of rows with weights, together where the rows are the same; a recursion has
    its own, which it repeats."""
    found: dict[Node, list[Node]] = {}
    for node in plan.nodes(linear):
        if is_weight(node.args[1]) and node.meta["of"] is not None:
            bias = _bias(node)
            if (bias is None or is_weight(bias)) and not node.meta["of"].recursive:
                if _is_split(node):
                    continue
                found.setdefault(input_node(node, 0), []).append(node)
    return list(found.values())


MUCH = 1 << 20  # numbers, which take longer to copy than a product of its own


def _is_split(node: Node) -> bool:
    """Whether the vectors of many rows are cut into several: a part of a wider product would have
    to be copied for that."""
    like = node.meta["like"]
    cut = (
        user.target == "reshape" and user.meta["like"].shape[:2] != like.shape[:2]
        for user in node.users
    )
    return like.numel() > MUCH and any(cut)


def _bias(node: Node) -> Any:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")


def _copied(graph: Graph, node: Node) -> Node:
    if node.op == "placeholder":
        return node
    copy = create(graph, node.op, node.target, node.args, node.kwargs)
    copy.meta.update(node.meta)
    return copy


def _linear(graph: Graph, group: list[Node], matrices: list[Node], sizes: list[int]) -> Node:
    """All rows times all matrices side by side, with the vectors that are added."""
    first = group[0]

    def call(target: Any, args: tuple[Any, ...], shape: tuple[int, ...]) -> Node:
        op = "call_method" if isinstance(target, str) else "call_function"
        node = create(graph, op, target, args)
        node.meta.update(of=first.meta["of"], like=described(shape, first.meta["like"].dtype))
        return node

    width, total = matrices[0].meta["like"].shape[1], sum(sizes)
    bias = None
    if any(_bias(node) is not None for node in group):
        vectors = [
            call("new_zeros", (matrix, (size,)), (size,))
            if _bias(node) is None
            else _copied(graph, _bias(node))
            for node, matrix, size in zip(group, matrices, sizes, strict=True)
        ]
        bias = call(torch.cat, (vectors,), (total,))
    wide = call(torch.cat, (matrices,), (total, width))
    shape = (*first.meta["like"].shape[:-1], total)
    found = call(linear, (first.args[0], wide, bias), shape)
    found.meta["merged"] = [_name(matrix) for matrix in matrices]
    return found


def _name(matrix: Node) -> str:
    """Of a weight."""
    held = matrix if matrix.op == "placeholder" else matrix.args[0]
    assert isinstance(held, Node)
    return str(held.meta["name"])
