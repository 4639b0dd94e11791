"""Layers as modules: the part of a plan that reads the weights of a layer is run by its module.

So FSDP2 has the weights of one layer at a time, activation checkpointing and pipelining take layers
one by one, and hooks of a layer run. A plan is one graph: it is cut where layers begin and end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from edgewise.errors import caller
from edgewise.physical.code import function_of
from edgewise.physical.plan import VIEWS, PhysicalPlan, untraced
from edgewise.physical.weights import NotALayer, Path, at, layer_of


@dataclass(frozen=True, eq=False)
class PlanPart:
    """The nodes of one layer, or those between two (`layer` is then None): values by name in and
    out; `paths` are those of weights, from the layer on."""

    layer: Path | None
    reads: tuple[str, ...]
    paths: tuple[Path, ...]
    gives: tuple[str, ...]
    last: tuple[str, ...]  # values that no later part reads
    function: Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True, eq=False)
class LayeredPlan:
    """A plan in parts, in order."""

    inputs: tuple[str, ...]
    parts: tuple[PlanPart, ...]
    output: Any

    def __call__(self, model: torch.nn.Module, inputs: Sequence[Tensor]) -> Any:
        """The output, of values of the inputs; each layer is called as a module."""
        values = dict(zip(self.inputs, inputs, strict=True))
        for part in self.parts:
            read = [values[name] for name in part.reads]
            if part.layer is None:
                found = part.function(*read, *(at(model, path) for path in part.paths))
            else:
                found = model.get_submodule(".".join(part.layer))(part, *read)
            for name in part.last:
                values.pop(name, None)
            values.update(zip(part.gives, found, strict=True))
        return map_arg(self.output, lambda node: values[node.name])


def layered(plan: PhysicalPlan, inputs: int, paths: Sequence[Path], traced: bool) -> LayeredPlan:
    """A plan whose placeholders are some inputs and then weights, in parts; `traced` for those that
    a trace goes through."""
    if not traced:
        return _Cut(plan.graph, plan.constants, inputs, paths).plan(traced)
    with untraced():
        module = plan.module()
        used = [node.target for node in module.graph.nodes if node.op == "get_attr"]
        constants = {name: getattr(module, name) for name in used}
        return _Cut(module.graph, constants, inputs, paths).plan(traced)


class _Cut:
    """Which part each node is in: 2k + 1 for layer k, in the order in which layers are read, and
    2k for what lies before it."""

    def __init__(
        self, graph: Graph, constants: Mapping[str, Any], inputs: int, paths: Sequence[Path]
    ) -> None:
        self.graph, self.constants = graph, constants
        places = [node for node in graph.nodes if node.op == "placeholder"]
        self.inputs, of_weights = places[:inputs], places[inputs:]
        self.weights = dict(zip(of_weights, paths, strict=True))
        self.layers = set(map(layer_of, paths))
        self.number: dict[Path, int] = {}
        self.part: dict[Node, int] = dict.fromkeys(self.inputs, 0)
        self.constant: set[Node] = set(of_weights)  # weights and views of them
        for node in graph.nodes:
            if node.op not in ("placeholder", "get_attr", "output"):
                self._place(node)

    def _place(self, node: Node) -> None:
        reads = [x for x in node.all_input_nodes if x.op != "get_attr"]
        if reads and node.target in VIEWS and self.constant.issuperset(reads):
            self.constant.add(node)
        least = max([self.part[x] for x in reads if x in self.part], default=0)
        owners = {layer_of(self.weights[x]) for x in reads if x in self.weights}
        layers = sorted(self._of(owner) for owner in owners if owner is not None)
        if not layers and None not in owners:
            layers = self._labelled(node)
        if layers:
            found = max(least, 2 * layers[-1] + 1)
        else:  # between layers, unless nothing says where it belongs
            known = None in owners or node.meta.get("of") is not None
            found = least + (least % 2 if known else 0)
        for owner in owners - {None}:
            assert owner is not None
            if 2 * self._of(owner) + 1 != found:
                self._refuse(owner, node)
        for x in reads:
            view = x in self.constant and x not in self.weights
            if view and self.part[x] % 2 and self.part[x] != found:
                self._refuse(list(self.number)[self.part[x] // 2], node)
        self.part[node] = found

    def _of(self, layer: Path) -> int:
        return self.number.setdefault(layer, len(self.number))

    def _labelled(self, node: Node) -> list[int]:
        """The layer whose relation a node is part of."""
        label = node.meta.get("of")
        path = None if label is None else layer_of((*label.relation.split("."), ""))
        return [self._of(path)] if path is not None and path in self.layers else []

    def _refuse(self, layer: Path, node: Node) -> None:
        label = node.meta.get("of")
        where = "another part" if label is None else f"`{label.relation}`"
        raise NotALayer(
            f"`{'.'.join(layer)}` cannot run by itself: {where} reads its weights too",
            caller(),
            "wrap, shard or split the whole model, or give that rule weights of its own",
        )

    def plan(self, traced: bool) -> LayeredPlan:
        last = self.graph.output_node()
        reader: dict[Node, int] = {}
        for node in self.graph.nodes:
            at_part = 2 * len(self.number) + 2 if node is last else self.part.get(node, 0)
            for x in node.all_input_nodes:
                reader[x] = max(reader.get(x, 0), at_part)
        by_part: dict[int, list[Node]] = {}
        for node, number in self.part.items():
            if node.op != "placeholder":
                by_part.setdefault(number, []).append(node)
        layers = list(self.number)
        parts = [
            self._part(layers[number // 2] if number % 2 else None, by_part[number], reader, traced)
            for number in sorted(by_part)
        ]
        return LayeredPlan(tuple(x.name for x in self.inputs), tuple(parts), last.args[0])

    def _part(
        self, layer: Path | None, nodes: list[Node], reader: dict[Node, int], traced: bool
    ) -> PlanPart:
        graph, copies = Graph(), dict[Node, Node]()
        number, inside = self.part[nodes[0]], set(nodes)
        outer = dict.fromkeys(x for n in nodes for x in n.all_input_nodes if x not in inside)
        reads = [x for x in outer if x.op != "get_attr" and x not in self.weights]
        weights = [x for x in outer if x in self.weights]
        for x in (*reads, *weights):
            copies[x] = graph.placeholder(x.name)
        for x in outer:
            if x.op == "get_attr":
                copies[x] = graph.node_copy(x)
        for node in nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        gives = [n for n in nodes if reader.get(n, 0) > number]
        graph.output(tuple(copies[n] for n in gives))
        skip = 0 if layer is None else len(layer)
        return PlanPart(
            layer,
            tuple(x.name for x in reads),
            tuple(self.weights[x][skip:] for x in weights),
            tuple(n.name for n in gives),
            tuple(x.name for x in reads if reader[x] <= number),
            self._function(graph, traced),
        )

    def _function(self, graph: Graph, traced: bool) -> Callable[..., Any]:
        if not traced:
            return function_of(graph, self.constants)
        used = {node.target for node in graph.nodes if node.op == "get_attr"}
        return GraphModule({n: x for n, x in self.constants.items() if n in used}, graph)
