"""A physical plan: one graph of tensor operations, run by the Python code that is its text."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from edgewise.errors import EdgewiseError, Place
from edgewise.layouts.recorded import recorder
from edgewise.physical.code import executed, function_of, source_of, text_of
from edgewise.physical.lowering import Lowering, PlanStep, is_pure
from edgewise.physical.opaque import is_opaque, prepared
from edgewise.physical.passes import optimise_graph
from edgewise.physical.recursion.scan import drop_unread
from edgewise.physical.symbols import Symbol

VIEWS: set[Any] = {"reshape", "transpose", "permute", "expand", "to", "narrow", "split", "unbind"}
VIEWS |= {"chunk", "expand_as", "split_with_sizes", "select", operator.getitem}
PASSING = {"add", "sub", torch.cat, torch.stack}  # operands get the gradient, or a part, unchanged


def tidy(graph: Graph) -> None:
    """No dead nodes: every value has a user."""
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output") and is_pure(node):
            graph.erase_node(node)


def _own_outputs(graph: Graph) -> None:
    """Copy an output that is a view of what the graph reads or holds, or of another output:
    callers write into it."""
    last, seen = graph.output_node(), set[Node]()

    def own(made: Node) -> Node:
        node = made
        while node.target in VIEWS and node.op not in ("placeholder", "get_attr"):
            node = node.all_input_nodes[0]
        if node.op not in ("placeholder", "get_attr") and node not in seen:
            seen.add(node)
            return made
        with graph.inserting_before(last):
            copy = graph.call_method("clone", (made,))
            copy.meta.update(made.meta)
        return copy

    last.args = map_arg(last.args, own)


def _own_gradients(graph: Graph) -> None:
    """Where a sum passes its gradient on unchanged to several placeholders, each has memory of its
    own: clipping and `all_reduce` write into gradients. That of `select` is a copy."""
    passing = {node for node in graph.nodes if node.op == "placeholder"}
    for node in list(graph.nodes):
        reads = [read for read in node.all_input_nodes if read in passing]
        if node.target in ("add", "sub"):
            size = node.meta["like"].numel()
            reads = [read for read in reads if read.meta["like"].numel() == size]
            for read in reads[1:] if node.target == "add" else []:
                with graph.inserting_before(node):
                    shape = read.meta["like"].shape
                    wide = graph.call_method("reshape", (read, (1, *shape)))
                    own = graph.call_method("select", (wide, 0, 0))
                wide.meta.update(read.meta, like=read.meta["like"][None])
                own.meta.update(read.meta)
                node.replace_input_with(read, own)
        if reads and (node.target in VIEWS or node.target in PASSING):
            passing.add(node)


Signature = list[tuple[torch.Size, torch.dtype]]


@dataclass(frozen=True, eq=False)
class PhysicalPlan:
    """Placeholders are inputs and weights, attributes `constants`: index tensors and kernels."""

    graph: Graph
    constants: dict[str, Any]
    device: torch.device
    signature: Signature
    works: tuple[PlanStep, ...] = ()
    passes: Mapping[str, int] = field(default_factory=dict)  # how many places each changed
    _bindings: dict[tuple[int, ...], _Binding] = field(default_factory=dict, repr=False)

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether tensors have the shapes and precisions that it was made for."""
        return [(tensor.shape, tensor.dtype) for tensor in tensors] == self.signature

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The graph as a function of its placeholders, in order."""
        return function_of(self.graph, self.constants)

    @cached_property
    def text(self) -> str:
        """The source of the function."""
        return text_of(self.graph)

    @cached_property
    def lifted(self) -> Callable[..., Any]:
        """The graph as a function of its placeholders, then of its constant tensors."""
        return function_of(self.graph, self.constants, lifted=True)

    @property
    def tensors(self) -> list[Tensor]:
        """The constant tensors, in the order in which they are first read."""
        things = (self.constants[n.target] for n in self.graph.nodes if n.op == "get_attr")
        return [thing for thing in things if isinstance(thing, Tensor)]

    @property
    def kernels(self) -> list[str]:
        """The names of nodes that are opaque."""
        return [node.target.__name__ for node in self.graph.nodes if is_opaque(node.target)]

    def __call__(self, *tensors: Tensor) -> Any:
        """What the graph gives: a tensor, or one for each of several outputs."""
        try:
            found = self.function(*tensors)
        except EdgewiseError as error:
            if error.place is None:
                error.place = self._place_of(error)
            raise
        return found

    def _place_of(self, error: EdgewiseError) -> Place | None:
        """The rule of the node that raised an error: generated code has one line a node."""
        lines = self.text.splitlines()
        for frame, number in walk_tb(error.__traceback__):
            if frame.f_code is self.function.__code__:
                name = lines[number - 1].split(" = ")[0].strip()
                label = next(n.meta.get("of") for n in self.graph.nodes if n.name == name)
                rule = None if label is None else getattr(label.step, "rule", None)
                return None if rule is None else rule.place
        return None

    def module(self) -> GraphModule:
        """The graph with operators of torch for kernels: for `torch.compile` and `torch.export`."""
        again = _replayed(self, Lowering(self.device, expanding=True))
        used = {node.target for node in again.graph.nodes if node.op == "get_attr"}
        held = {name: thing for name, thing in again.constants.items() if name in used}
        return GraphModule(held, again.graph)

    def bound(self, weights: Mapping[int, Tensor]) -> Callable[..., Any]:
        """The function with constants for some placeholders, by position: their views, and what
        kernels make of them before they see rows, are worked out once."""
        places = tuple(weights)
        if places not in self._bindings:
            self._bindings[places] = _Binding(self, places)
        return self._bindings[places].function(weights)


class _Binding:
    """The code of a plan with constants for some placeholders, written once for all weights."""

    def __init__(self, plan: PhysicalPlan, places: Sequence[int]) -> None:
        arguments = [node for node in plan.graph.nodes if node.op == "placeholder"]
        self.places = {arguments[at]: at for at in places}
        self.made: dict[Node, str] = {}  # what is computed of weights, in order, and its name
        graph, constants = Graph(), dict(plan.constants)
        copies: dict[Node, Node] = {}
        held: set[Node] = set()
        for node in plan.graph.nodes:
            reads = node.all_input_nodes
            view = node in self.places or (reads and node.target in VIEWS and held >= set(reads))
            ready = None if view else prepared(node.target)
            if not view and (ready is None or not held >= set(reads[1:])):
                copies[node] = graph.node_copy(node, copies.__getitem__)
                continue
            attribute = graph.get_attr(f"bound_{node.name}")
            self.made[node] = attribute.name
            constants[f"bound_{node.name}"] = None
            copies[node] = attribute
            if view:
                held.add(node)
            else:
                copies[node] = graph.call_function(_called, (attribute, copies[reads[0]]))
        self.text, self.scope = source_of(graph, constants)

    def function(self, weights: Mapping[int, Tensor]) -> Callable[..., Any]:
        """The function of the placeholders that are left."""
        held: dict[Node, Any] = {}
        scope = dict(self.scope)
        for node, name in self.made.items():
            if node in self.places:
                held[node] = weights[self.places[node]]
            elif ready := prepared(node.target):
                held[node] = ready(*map_arg(node.args[1:], held.__getitem__))
            else:
                held[node] = run_node(node, *map_arg((node.args, node.kwargs), held.__getitem__))
            scope[name] = held[node]
        return executed(self.text, scope)


def _called(function: Callable[[Tensor], Any], x: Tensor) -> Any:
    return function(x)


def run_node(node: Node, args: Any, kwargs: Any) -> Any:
    if isinstance(node.target, str):
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


@contextmanager
def untraced() -> Iterator[None]:
    """Real tensors for every use, also while a step is exported, traced, transformed (`torch.func`)
    or only evaluated."""
    modes = torch.utils._python_dispatch._disable_current_modes()
    with ExitStack() as stack, modes, torch._guards.tracing(None), torch.inference_mode(False):
        stack.enter_context(_uncollected())
        stack.enter_context(temporarily_clear_interpreter_stack())
        modes_of_others = 0 if recorder() else torch._C._len_torch_function_stack()
        for _ in range(modes_of_others):
            stack.enter_context(torch.overrides._pop_mode_temporarily())
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection: grounding and lowering make many objects that stay, and their number
    starts collections that look at every object of the process."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def lowered(
    run: Callable[[Lowering, Sequence[Symbol]], Tensor | tuple[Tensor, ...]],
    names: Sequence[str],
    tensors: Sequence[Tensor],
    device: torch.device,
    *,
    without: Collection[str] = (),
    appending: bool = False,
    analysed: dict[Any, Any] | None = None,
    reads_keys: bool = True,
    batches: float = 1,
) -> PhysicalPlan:
    """What `run` computes of tensors like these; `names` are those of placeholders, `without` the
    passes that are left out, `analysed` what was found out about constants before, `batches` how
    many calls the rows are of."""
    lowering = Lowering(device, without=without, analysed=analysed)
    lowering.reads_keys = reads_keys and device.type != "meta"
    lowering.batches = batches
    symbols = [lowering.placeholder(n, t) for n, t in zip(names, tensors, strict=True)]
    with torch.no_grad():
        result = run(lowering, symbols)
        return _finished(lowering, result, [(t.shape, t.dtype) for t in tensors], appending)


def lowered_parts(
    run: Callable[[Lowering, Sequence[Symbol]], dict[str, Tensor]],
    names: Sequence[str],
    tensors: Sequence[Tensor],
    device: torch.device,
    without: Collection[str] = (),
) -> tuple[PhysicalPlan, dict[str, Symbol]]:
    """The same of a part of a graph that gives several values, and those as symbols."""
    lowering = Lowering(device, without=without)
    symbols = [lowering.placeholder(n, t) for n, t in zip(names, tensors, strict=True)]
    with torch.no_grad():
        found = {name: lowering.lifted(value) for name, value in run(lowering, symbols).items()}
        lowering.graph.output(tuple(map(lowering.node, found.values())))
        optimise_graph(lowering, appending=False)
    tidy(lowering.graph)
    signature = [(t.shape, t.dtype) for t in tensors]
    return PhysicalPlan(lowering.graph, lowering.constants, device, signature), found


def _finished(
    lowering: Lowering,
    result: Tensor | tuple[Tensor, ...],
    signature: Signature,
    appending: bool | None = None,
) -> PhysicalPlan:
    def written(value: Tensor) -> Node:
        return lowering.node(value if isinstance(value, Symbol) else lowering.lifted(value))

    made = tuple(map(written, result)) if isinstance(result, tuple) else written(result)
    lowering.graph.output(made)
    changed = {} if appending is None else optimise_graph(lowering, appending)
    _own_outputs(lowering.graph)
    _own_gradients(lowering.graph)
    tidy(lowering.graph)
    drop_unread(lowering)
    parts = lowering.graph, lowering.constants, lowering.device, signature
    return PhysicalPlan(*parts, tuple(lowering.works), changed)


def _replayed(plan: PhysicalPlan, lowering: Lowering) -> PhysicalPlan:
    """The graph written again by another lowering."""
    values: dict[Node, Any] = {}
    for node in plan.graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        lowering.label = node.meta.get("of")
        match node.op:
            case "placeholder":
                values[node] = lowering.placeholder(node.target, node.meta["like"])
            case "get_attr":
                thing = plan.constants[node.target]
                values[node] = lowering.lifted(thing) if isinstance(thing, Tensor) else thing
            case "output":
                return _finished(lowering, args[0], plan.signature)
            case _ if is_opaque(node.target):
                values[node] = lowering.call(node.target, args, kwargs)
            case _:
                values[node] = run_node(node, args, kwargs)
    raise AssertionError("a graph ends with its output")
