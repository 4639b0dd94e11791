"""Python code generated from the graph of a physical plan."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

INLINE = (type(None), bool, int, str)
MOST = 1 << 22  # characters of source whose code is held
_CODE: dict[str, CodeType] = {}


def text_of(graph: Graph) -> str:
    """The source alone."""
    return _Writer(None).function(graph)


def function_of(
    graph: Graph, constants: Mapping[str, Any], lifted: bool = False
) -> Callable[..., Any]:
    """The graph as a function of its placeholders, in order.

    Constants are its globals; if `lifted`, those that are tensors its last arguments.
    """
    return executed(*source_of(graph, constants, lifted))


def executed(text: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function that a source defines."""
    # names of ours and integers: nothing that a user wrote is evaluated
    exec(_code(text), scope)
    found: Callable[..., Any] = scope["step"]
    return found


def source_of(
    graph: Graph, constants: Mapping[str, Any], lifted: bool = False
) -> tuple[str, dict[str, Any]]:
    """The source of the function, and its globals: constants, sizes and what it calls."""
    writer = _Writer(constants, lifted)
    return writer.function(graph), writer.scope


def _code(text: str) -> CodeType:
    """The code of a source, which other sizes have too: those are globals."""
    if text not in _CODE:
        if sum(map(len, _CODE)) + len(text) > MOST:
            _CODE.clear()
        _CODE[text] = compile(text, "<step>", "exec")
    return _CODE[text]


class _Writer:
    def __init__(self, constants: Mapping[str, Any] | None, lifted: bool = False) -> None:
        self.constants = constants
        self.lifted = lifted
        # errors look for their place in frames outside of the package; lifted code is compiled, and
        # Dynamo would import the module
        self.scope: dict[str, Any] = {} if lifted else {"__name__": "edgewise.physical.generated"}
        self.known: dict[Any, str] = {}

    def function(self, graph: Graph) -> str:
        reads = {node: node.all_input_nodes for node in graph.nodes}
        last = {read: node for node, inputs in reads.items() for read in inputs}
        arguments, last_arguments, lines = [], [], []
        for node in graph.nodes:
            match node.op:
                case "placeholder":
                    arguments.append(node.name)
                    continue
                case "get_attr":
                    thing = None if self.constants is None else self.constants[node.target]
                    if self.lifted and isinstance(thing, Tensor):
                        last_arguments.append(node.name)
                    self.scope[node.name] = thing
                    continue
                case "output":
                    lines.append(f"    return {self.text(node.args[0])}")
                    continue
            lines.append(f"    {node.name} = {self.call(node)}")
            over = [read for read in reads[node] if last[read] is node]
            over = [read.name for read in over if read.op != "get_attr"]
            over += [] if node in last else [node.name]
            if over:
                lines.append(f"    del {', '.join(over)}")
        return "\n".join([f"def step({', '.join(arguments + last_arguments)}):", *lines])

    def call(self, node: Node) -> str:
        arguments = [self.text(argument) for argument in node.args]
        if node.target is operator.getitem:
            return f"{arguments[0]}[{arguments[1]}]"
        arguments += [f"{name}={self.text(item)}" for name, item in node.kwargs.items()]
        if node.op == "call_method":
            return f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
        return f"{self.name(node.target)}({', '.join(arguments)})"

    def text(self, item: Any) -> str:
        if isinstance(item, Node):
            return item.name
        if self.constants is not None and not self.lifted and _is_size(item):
            name = f"size{len(self.scope)}"
            self.scope[name] = item
            return name
        if type(item) in INLINE:
            return repr(item)
        if isinstance(item, tuple):
            return f"({''.join(self.text(part) + ', ' for part in item)})"
        if isinstance(item, list):
            return f"[{', '.join(map(self.text, item))}]"
        if isinstance(item, dict):
            inside = (f"{self.text(key)}: {self.text(part)}" for key, part in item.items())
            return f"{{{', '.join(inside)}}}"
        if isinstance(item, slice):
            return f"slice({self.text(item.start)}, {self.text(item.stop)}, {self.text(item.step)})"
        return "..." if item is Ellipsis else self.name(item)

    def name(self, thing: Any) -> str:
        """A global for a function, a float or a dtype: the same for the same one."""
        plain = isinstance(thing, float | torch.dtype | torch.device)
        key = (type(thing), repr(thing)) if plain else id(thing)
        if key not in self.known:
            self.known[key] = f"_{len(self.known)}"
            self.scope[self.known[key]] = thing
        return self.known[key]


def _is_size(item: Any) -> bool:
    if isinstance(item, tuple | list):
        return bool(item) and all(type(part) is int for part in item)
    return type(item) is int
