"""Names of graphs and scores in a trace: an operator takes text, so they go by what they print.

A trace may be saved and run in another process, where it is read again. What prints as too much
has a name that no other process knows: there it is an error, never another graph.

What is made while a trace runs is not there yet, only how it is made: it is made again from that.
"""

import ast
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import parse
from edgewise.graphs.families import per_head
from edgewise.graphs.int_array import refuse_in_trace
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.errors import BadOption
from edgewise.scores.nodes import Call, Entry, Leaf, Node, Number
from edgewise.scores.primitives import PRIMITIVES

T = TypeVar("T")
NAMED: dict[str, Any] = {}  # what is not written down: whoever holds a trace needs it
_NAMES: dict[Any, str] = {}
LONGEST = 10_000  # characters
NOT_READ = (EdgewiseError, ValueError, SyntaxError, TypeError, RecursionError, MemoryError)
HERE = f"only in process {uuid4()}: "
PARTS = (Pattern, per_head, Leaf, Number, Entry, Call)


def is_traced(*tensors: Tensor) -> bool:
    """Whether operations are written down, or done on tensors without numbers."""
    if torch.compiler.is_compiling():
        return True
    if torch._C._len_torch_dispatch_stack() and get_proxy_mode() is not None:
        return True
    return any(type(x) is not Tensor and isinstance(x, FakeTensor) for x in tensors)


def constant(function: Callable[..., T]) -> Callable[..., T]:
    """Called as plain Python while a trace is made; its result is a constant there.

    As `torch.compiler.assume_constant_result` marks it, which would load Dynamo, and Triton with
    it, also for those who compile nothing.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def name_of(thing: Any) -> str:
    """The name of a graph or of a score's tree; equal ones have the same."""
    if thing._exists():
        return thing._trace_name(id(thing))  # a trace is made again for another object
    names = _fields(type(thing))
    return _made(type(thing), names, tuple([_part(getattr(thing, name)) for name in names]))


@constant
def _fields(kind: Any) -> tuple[str, ...]:
    """All of them: `__match_args__` leaves out those that are keyword-only."""
    return tuple(field.name for field in fields(kind))


def _part(value: Any) -> tuple[str, Any]:
    if isinstance(value, PARTS):
        return "named", name_of(value)
    if isinstance(value, Tensor | np.ndarray):
        refuse_in_trace()
    if isinstance(value, list | tuple):
        return "tuple", tuple([_part(x) for x in value])
    if type(value) is int:  # of a size that changes: a trace takes the end of a range as a number
        return "value", range(value).stop
    return "value", value


@constant
def _exists(self: Any) -> bool:
    """Whether it was made before the trace: what is made inside has no fields yet."""
    return all(name in vars(self) for name in _fields(type(self)))


@constant
def _trace_name(self: Any, identity: int) -> str:
    return _placed(self)


_kind: Any
for _kind in PARTS:  # methods: a trace of torch 2.11 takes a dataclass as `self` and nowhere else
    _kind._exists = _exists
    _kind._trace_name = _trace_name


@constant
def _made(kind: type, names: tuple[str, ...], parts: tuple[tuple[str, Any], ...]) -> str:
    made: Any = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, _read(part))
    if hasattr(made, "__post_init__"):
        made.__post_init__()
    return _placed(made)


def _read(part: tuple[str, Any]) -> Any:
    how, value = part
    if how == "tuple":
        return tuple(_read(x) for x in value)
    return thing_of(value) if how == "named" else value


def _placed(thing: Any) -> str:
    key = (type(thing), thing)
    if key in _NAMES:
        return _NAMES[key]
    if (text := _text(thing)) is not None:
        return text
    name = _NAMES[key] = f"{HERE}{len(NAMED)}"
    NAMED[name] = thing
    return name


def thing_of(name: str) -> Any:
    """The graph or the score's tree of this name, which may come from another process."""
    if name in NAMED:
        return NAMED[name]
    try:
        return _read_again(name)
    except NOT_READ:
        raise BadOption(
            f"the trace names a graph or a score that is not here: {name[:100]}",
            caller(),
            f"trace it in this process: more than {LONGEST:,} characters are not written down",
        ) from None


def _text(thing: Any) -> str | None:
    """What it prints, if that is short and says all."""
    text = repr(thing if isinstance(thing, Pattern) else _tuples(thing))
    try:
        return text if len(text) <= LONGEST and _parsed(text) == thing else None
    except NOT_READ:
        return None


@lru_cache(maxsize=64)
def _read_again(text: str) -> Any:
    return _parsed(text)


def _parsed(text: str) -> Any:
    return _node(ast.literal_eval(text)) if text.startswith("('") else parse(text)


def _tuples(node: Node) -> tuple[Any, ...]:
    match node:
        case Call(function, operands):
            return (function, *(_tuples(operand) for operand in operands))
        case Entry(table, index):
            return "entry", table, _tuples(index)
        case Number(value):
            return "number", value
        case Leaf(name):
            return "leaf", name
    raise ValueError(node)  # a value of pairs, which a table takes the place of


def _node(tuples: tuple[Any, ...]) -> Node:
    match tuples:
        case "leaf", name:
            return Leaf(name)
        case "number", value:
            return Number(value)
        case "entry", table, index:
            return Entry(table, _node(index))
    function, *operands = tuples
    if function not in PRIMITIVES:
        raise ValueError(function)
    return Call(function, tuple(_node(operand) for operand in operands))
