"""Passes over the graph of a physical plan: named functions Graph → Graph, in one order."""

from __future__ import annotations

from collections.abc import Collection
from inspect import unwrap
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.nn.functional import linear

from edgewise.kernels.products import Products
from edgewise.physical.result_shapes import described
from edgewise.physical.symbols import input_node, opaque


@opaque(
    like=lambda x, *matrices: [
        torch.empty(*x.shape[:-1], len(m), dtype=x.dtype, device="meta") for m in matrices
    ],
    prepare=lambda *matrices: Products(matrices),
)
def products(x: torch.Tensor, *matrices: torch.Tensor) -> list[torch.Tensor]:
    """Rows times each of some matrices, which are read once for all."""
    return Products(matrices)(x)


def merge_projections(graph: Graph) -> None:
    """Matrices that take the same rows are one product: linear(x, W₁), linear(x, W₂), ... →
    linear(x, (W₁, W₂, ...)), split."""
    for group in _projections(graph):
        if len(group) < 2:
            continue
        with graph.inserting_before(group[0]):
            matrices = [_copied(graph, input_node(node, 1)) for node in group]
            sizes = [len(matrix.meta["like"]) for matrix in matrices]
            wide = _linear(graph, group, matrices, sizes)
            parts = graph.call_method("split", (wide, sizes, -1))
            parts.meta["of"] = wide.meta["of"]
            for at, node in enumerate(group):
                part = graph.call_function(getitem, (parts, at))
                part.meta.update(node.meta)
                node.replace_all_uses_with(part)
        for node in group:
            graph.erase_node(node)


def read_matrices_once(graph: Graph) -> None:
    """For rows that are appended: products of few rows, by loops that read each matrix once."""
    for group in _projections(graph):
        x = group[0].args[0]
        with graph.inserting_before(group[0]):
            matrices = [_copied(graph, input_node(node, 1)) for node in group]
            parts = graph.call_function(unwrap(products), (x, *matrices))
            parts.meta["of"] = group[0].meta["of"]
            for at, node in enumerate(group):
                part = graph.call_function(getitem, (parts, at))
                part.meta.update(node.meta)
                if _bias(node) is not None:
                    part = graph.call_method("add", (part, _copied(graph, _bias(node))))
                    part.meta.update(node.meta)
                node.replace_all_uses_with(part)
        for node in group:
            graph.erase_node(node)


# in order; the reasons of those that can be left out are in `edgewise.passes.EXECUTION`
PASSES = {"merge projections": merge_projections}
OF_FEW_ROWS = {"read matrices once": read_matrices_once}


def optimise_graph(graph: Graph, without: Collection[str], few_rows: bool) -> None:
    """Run the passes that are not left out; `few_rows` for a step that appends some."""
    for name, run in (OF_FEW_ROWS if few_rows else PASSES).items():
        if name not in without:
            run(graph)


def _projections(graph: Graph) -> list[list[Node]]:
    """The products of rows with weights, together where the rows are the same; a recursion keeps
    its own, which it repeats."""
    found: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.target is linear and _is_weight(node.args[1]) and node.meta["of"] is not None:
            bias = _bias(node)
            if (bias is None or _is_weight(bias)) and not node.meta["of"].recursive:
                found.setdefault(input_node(node, 0), []).append(node)
    return list(found.values())


def _bias(node: Node) -> Any:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")


def _is_weight(node: Any) -> bool:
    """Whether a value is there before the first operation: a placeholder, or a reshape of one."""
    if node.op == "call_method" and node.target == "reshape":
        node = node.args[0]
    return bool(node.op == "placeholder")


def _copied(graph: Graph, node: Node) -> Node:
    return node if node.op == "placeholder" else graph.node_copy(node)


def _linear(graph: Graph, group: list[Node], matrices: list[Node], sizes: list[int]) -> Node:
    """All rows times all matrices side by side, with the vectors that are added."""
    first = group[0]

    def call(target: Any, args: tuple[Any, ...], shape: tuple[int, ...]) -> Node:
        op = "call_method" if isinstance(target, str) else "call_function"
        node = graph.create_node(op, target, args)
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
