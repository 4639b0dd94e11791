"""Graphs and scores in a trace: an operator takes numbers, so they go by their place in a list.

What is made while a trace runs is not there yet, only how it is made: it is made again from that.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern
from edgewise.scores.nodes import Call, Entry, Leaf, Number

T = TypeVar("T")
KEPT: list[Any] = []
_PLACES: dict[Any, int] = {}
PARTS = (Pattern, per_head, Leaf, Number, Entry, Call)


def constant(function: Callable[..., T]) -> Callable[..., T]:
    """Called as plain Python while a trace is made; its result is a constant there.

    As `torch.compiler.assume_constant_result` marks it, which would load Dynamo, and Triton with
    it, also for those who compile nothing.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def number_of(thing: Any) -> int:
    """The place of a graph or of a score's tree; equal ones have the same."""
    if _is_there(thing):
        return _kept(thing, id(thing))  # a trace is made again for another object
    names = type(thing).__match_args__
    return _made(type(thing), names, tuple([_part(getattr(thing, name)) for name in names]))


def _part(value: Any) -> tuple[str, Any]:
    if isinstance(value, PARTS):
        return "kept", number_of(value)
    if isinstance(value, tuple):
        return "tuple", tuple([_part(x) for x in value])
    return "value", value


@constant
def _is_there(thing: Any) -> bool:
    try:
        hash(thing)
    except AttributeError:
        return False
    return True


@constant
def _kept(thing: Any, identity: int) -> int:
    return _placed(thing)


@constant
def _made(kind: type, names: tuple[str, ...], parts: tuple[tuple[str, Any], ...]) -> int:
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
    return KEPT[value] if how == "kept" else value


def _placed(thing: Any) -> int:
    key = (type(thing), thing)
    if key not in _PLACES:
        _PLACES[key] = len(KEPT)
        KEPT.append(thing)
    return _PLACES[key]
