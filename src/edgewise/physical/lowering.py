"""Lowering: what is computed on symbols is written into a graph instead.

Code that computes with tensors runs once on symbols; a torch function that reads one becomes a
node, unless its result is known from the shape.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from edgewise.graphs.pattern import Pattern
from edgewise.ground.joins.body import Body
from edgewise.kernels.kernel_choices import Chosen, watched
from edgewise.language.nodes import Expression, Function, Line, Rule
from edgewise.layouts.recorded import Length, key_of
from edgewise.physical.opaque import find_opaque
from edgewise.physical.result_shapes import (
    IN_ORDER,
    MANY,
    META,
    described,
    keeps_order,
    like_result,
)
from edgewise.physical.symbols import Symbol

RANDOM = {torch.bernoulli, torch.nn.functional.dropout, torch.randint}
AS_THEY_ARE = {
    type(None),
    bool,
    int,
    Length,
    float,
    str,
    slice,
    torch.dtype,
    torch.device,
    type(...),
}


@dataclass(eq=False)
class PlanStep:
    """One step of a plan, of which nodes are part: a rule, an attention, a recursion, or (None) the
    rules of a relation together; and the kernels that were chosen for it."""

    relation: str
    step: Any
    kernels: list[Chosen]
    rows: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def recursive(self) -> bool:
        return hasattr(self.step, "component")


class Lowering:
    """A graph while it is written: placeholders, constants as attributes, one node per call."""

    def __init__(
        self,
        device: torch.device,
        *,
        expanding: bool = False,
        without: Collection[str] = (),
        analysed: dict[Any, Any] | None = None,
    ) -> None:
        self.device = device
        self.without = without  # passes that are left out
        self.batches = 1.0  # that the rows are of: kernels are chosen for one of them
        self.reads_keys = True  # False if the graph must hold for other keys as well
        self.analysed = {} if analysed is None else analysed  # what was found out about constants
        self.graph = Graph()
        self.constants: dict[str, Any] = {}
        self.label: PlanStep | None = None  # of the nodes that are written now
        self.works: list[PlanStep] = []
        self.expanding = expanding
        self._held: dict[int, tuple[Any, Node, Tensor | None]] = {}

    def placeholder(self, name: str, like: Tensor) -> Symbol:
        """An argument of the graph with the shape and precision of a tensor."""
        node = self._argument(name)
        node.meta.update(name=name, of=None)
        return self._symbol(node, described(like.shape, like.dtype))

    def argument(self, name: str, thing: Any) -> None:
        """Let a thing that is not a tensor, such as a cache, be an argument of the graph."""
        self._held[id(thing)] = thing, self._argument(name), None

    def hole(self, name: str, like: Tensor) -> Node:
        """A node that stands for a value while something is lowered, and is erased after it."""
        node = self._node("get_attr", identifier(name), ())
        node.meta["like"] = like
        return node

    def _argument(self, name: str) -> Node:
        node = self.graph.create_node("placeholder", "", name=identifier(name))
        node.target = node.name  # which is unique
        return node

    # what was written

    @property
    def last(self) -> Node:
        """The last node so far, or what is before the first."""
        return next(iter(reversed(self.graph.nodes)), self.graph._root)

    def written_after(self, last: Node) -> list[Node]:
        """The nodes from there on."""
        found = []
        for node in reversed(self.graph.nodes):
            if node is last:
                break
            found.append(node)
        return found[::-1]

    def copied(self, nodes: Iterable[Node], others: Mapping[Node, Node]) -> dict[Node, Node]:
        """Write nodes again where they read, or draw random numbers, with some nodes replaced by
        others; the copies."""
        found = dict(others)
        for node in nodes:
            if is_pure(node) and not any(read in found for read in node.all_input_nodes):
                continue
            args, kwargs = map_arg((node.args, node.kwargs), lambda read: found.get(read, read))
            found[node] = create(self.graph, node.op, node.target, args, kwargs)
            found[node].meta.update(node.meta)
        return found

    # rewriting

    def symbol(self, node: Node) -> Symbol:
        """The value of a node, to compute with."""
        found = self._symbol(node, node.meta["like"])
        if node.target == "reshape":
            found.base = self.symbol(input_node(node, 0))
        return found

    @contextmanager
    def rewriting(self, node: Node) -> Iterator[None]:
        """Inside, what is computed is written before a node, as a part of its step."""
        self.label = step = node.meta["of"]
        with self.graph.inserting_before(node), watched() as kernels:
            yield
        if step is not None:
            step.kernels += kernels

    def replace(self, node: Node, value: Tensor) -> None:
        """Let all users of a node read a value instead; what it alone has read goes with it."""
        assert isinstance(value, Symbol)
        node.replace_all_uses_with(self.node(value))
        self.erase(node)

    def erase(self, node: Node) -> None:
        """Remove a node without users, and those that have none without it."""
        reads = node.all_input_nodes
        self.graph.erase_node(node)
        for read in reads:
            unread = not read.users and not read._erased  # one may have erased another
            if unread and read.op != "placeholder" and is_pure(read):
                self.erase(read)

    def nodes(self, target: Any) -> Iterator[Node]:
        """The nodes that call a function, or (by name) a method, while passes replace some."""
        op = "call_method" if isinstance(target, str) else "call_function"
        found = self.graph.find_nodes(op=op, target=target)
        return (node for node in found if not node._erased)

    def usual(self, rows: int) -> float:
        """How many of these rows a call has."""
        return rows / self.batches

    def analyse(self, key: Any, find: Callable[[], Any], *things: Any) -> Any:
        """What is found out about constants, once for all graphs of a step. `things` are held: the
        key has their identities."""
        key = tuple(map(key_of, key)) if isinstance(key, tuple) else key
        if key not in self.analysed:
            self.analysed[key] = find(), things
        return self.analysed[key][0]

    def constant(self, thing: Any) -> Node:
        """Anything that stays as it is, as an attribute of the graph."""
        found = self._held.get(id(thing))
        if found is None or found[1]._erased:  # a pass removed all that read it
            kind = "index" if isinstance(thing, Tensor) and not thing.is_floating_point() else ""
            name = f"{kind or type(thing).__name__.lower().strip('_')}{len(self.constants)}"
            self.constants[name] = thing
            like = None
            if isinstance(thing, Tensor):
                like = described(thing.shape, thing.dtype)
            found = self._held[id(thing)] = thing, self._node("get_attr", name, ()), like
            if like is not None:
                found[1].meta["like"] = like
        return found[1]

    def lifted(self, tensor: Tensor) -> Symbol:
        """A constant as a symbol, so that what is computed from it is computed at every call."""
        if isinstance(tensor, Symbol):
            return tensor
        node = self.constant(tensor)
        like = self._held[id(tensor)][2]
        assert like is not None
        return self._symbol(node, like)

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Write down one call of a torch function, or of an opaque one; its results."""
        kernel = find_opaque(func)
        if kernel is not None:
            if self.expanding and kernel.operators is not None:
                return kernel.operators(*args, **kwargs)
            return self._results(func, args, kwargs, kernel.like(*args, **kwargs))
        if getattr(func, "__name__", "") == "__get__":
            return self._property(func, args[0])
        like = like_result(func, args, kwargs, self._like)
        if func is Tensor.to and like is args[0].like:
            return args[0]
        return self._results(func, args, kwargs, like)

    def _property(self, getter: Any, symbol: Symbol) -> Any:
        name = getter.__self__.__name__
        if name in ("T", "H", "data", "grad", "real", "imag"):
            raise NotImplementedError(f"`Tensor.{name}` of a symbol")
        return getattr(symbol.like, name)

    def _results(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], like: Any
    ) -> Any:
        op, target = _target(func)
        if target in IN_ORDER and type(args[0]) is Symbol and keeps_order(target, args, like):
            return self.reshaped(args[0], like.shape)
        node = self._node(op, target, tuple(map(self._named, args)), kwargs and self._named(kwargs))
        if isinstance(like, Tensor):
            return self._symbol(node, like)
        if not isinstance(like, tuple | list):
            raise NotImplementedError(f"`{func}` reads a number off a symbol")
        parts = [
            self._symbol(self._node("call_function", operator.getitem, (node, at)), part)
            for at, part in enumerate(like)
        ]
        plain = type(like) in (tuple, list)
        return type(like)(parts) if plain else type(like)(tuple(parts))

    def reshaped(self, symbol: Symbol, shape: tuple[int, ...]) -> Symbol:
        """A value that keeps the elements of another in their order: one reshape of its base."""
        if symbol.like.shape == shape:
            return symbol
        base = symbol.base
        if base.like.shape == shape:
            return base
        found = self._symbol(None, described(shape, base.like.dtype))
        found.base = base
        return found

    def node(self, symbol: Symbol) -> Node:
        """What computes a symbol; a reshape is written down when it is first read."""
        if symbol.computed is None:
            read = (self.node(symbol.base), tuple(symbol.shape))
            symbol.computed = self._node("call_method", "reshape", read)
            symbol.computed.meta["like"] = symbol.like
        return symbol.computed

    def _node(self, op: str, target: Any, args: Any, kwargs: Any = None) -> Node:
        node = create(self.graph, op, target, args, kwargs)
        node.meta["of"] = self.label
        return node

    def _symbol(self, node: Node | None, like: Tensor) -> Symbol:
        symbol = like.as_subclass(Symbol)
        symbol.computed, symbol.like, symbol.lowering, symbol.base = node, like, self, symbol
        if node is not None:
            node.meta["like"] = like
        return symbol

    def _named(self, item: Any) -> Any:
        """Arguments as a graph takes them: nodes for tensors and for things of ours."""
        kind = type(item)
        if kind is Symbol:
            return self.node(item)
        if kind in AS_THEY_ARE:
            return item
        if isinstance(item, tuple):
            return tuple([self._named(part) for part in item])
        if isinstance(item, list):
            return [self._named(part) for part in item]
        if isinstance(item, dict):
            return {key: self._named(part) for key, part in item.items()}
        return self.constant(item)

    def _like(self, item: Any) -> Any:
        """Arguments without numbers."""
        kind = type(item)
        if kind is Symbol:
            return item.like
        if kind in AS_THEY_ARE and kind is not torch.device:
            return item
        match item:
            case Tensor():
                self.constant(item)
                return self._held[id(item)][2]
            case torch.Size():
                return item
            case tuple():
                return tuple([self._like(part) for part in item])
            case list():
                return [self._like(part) for part in item]
            case dict():
                return {key: self._like(part) for key, part in item.items()}
            case torch.device():
                return META
        return item


@lru_cache(MANY)
def identifier(name: str) -> str:
    """A name as one of Python's; the function of a module has an argument `self`."""
    name = re.sub(r"\W", "_", name)
    return name if name.isidentifier() and name != "self" else f"p{name}"


@lru_cache(MANY)
def _target(func: Callable[..., Any]) -> tuple[str, Any]:
    """How a graph calls a function."""
    name = getattr(func, "__name__", "")
    if name == "__getitem__":
        return "call_function", operator.getitem
    if getattr(Tensor, name, None) is func:
        return "call_method", name
    return "call_function", func


def create(graph: Graph, op: str, target: Any, args: Any, kwargs: Any = None) -> Node:
    """A node without metadata; arguments come afterwards, as torch 2.13 looks at each otherwise."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "call")
    node = graph.create_node(op, target, name=name)
    set_args(node, args)
    if kwargs:
        node.kwargs = kwargs
    return node


# the setter of a node's arguments; by name it goes through tables of the graph first
set_args: Callable[[Node, Any], None] = Node.args.fset  # type: ignore[attr-defined]


def is_pure(node: Node) -> bool:
    """Whether a node without users is dead code: it draws no random numbers."""
    return node.op == "get_attr" or node.target not in RANDOM


def is_weight(node: Any) -> bool:
    """Whether a value is there before the first operation: a placeholder, or a reshape of one."""
    if node.op == "call_method" and node.target == "reshape":
        node = node.args[0]
    return bool(node.op == "placeholder")


def input_node(node: Node, at: int) -> Node:
    """The node that an argument of a node is."""
    found = node.args[at]
    assert isinstance(found, Node)
    return found


def to_device(thing: Any, device: torch.device) -> Any:
    """The same structure with its tensors on `device`, those worked out before included."""
    if device.type == "cpu":
        return thing  # keys are joined there
    match thing:
        case Tensor():
            return thing.to(device)
        case dict():
            return {key: to_device(value, device) for key, value in thing.items()}
        case tuple():
            return tuple(to_device(item, device) for item in thing)
        case list():
            return [to_device(item, device) for item in thing]
        case Body() | Pattern() | Expression() | Rule() | Line() | Function():
            return thing
    if is_dataclass(thing) and not isinstance(thing, type):
        if hasattr(thing, "complete"):  # what would be worked out later, on another device
            thing.complete()
        moved = {name: to_device(value, device) for name, value in vars(thing).items()}
        made = type(thing)(**{f.name: moved.pop(f.name) for f in fields(thing)})
        vars(made).update(moved)
        return made
    return thing
