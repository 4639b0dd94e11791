"""What a recording notes: calls, where their arguments come from, and decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Ref:
    """A result of a recorded call, or a part of it: an item (a number) or a field (a name)."""

    call: int
    path: tuple[int | str, ...] = ()


@dataclass(frozen=True, eq=False)
class Held:
    """A thing that is the same in every call."""

    thing: Any


@dataclass(frozen=True, eq=False)
class Built:
    """A tuple, list, slice or dataclass of other things; `names` are those of fields."""

    kind: Any
    parts: tuple[Any, ...]
    names: tuple[str, ...] = ()


@dataclass(eq=False)
class NotedCall:
    """A function with what it was given, None of an input; `checks` are the values that parts of
    its result must have: truth values, kinds, lengths of lists."""

    function: Any
    args: Any = None
    kwargs: Any = None
    checks: list[tuple[Ref, Any]] = field(default_factory=list)
    made: set[int] = field(default_factory=set)  # memory of results
    written: set[int] = field(default_factory=set)  # memory that it writes into
    read: set[int] = field(default_factory=set)
    detached: bool = False  # gradients were off


@dataclass(frozen=True, eq=False)
class NotedDecision:
    """A comparison of two numbers, and what it said."""

    function: Callable[..., bool]
    one: Any
    other: Any
    found: bool


@dataclass(frozen=True)
class ListOf:
    """A check: a tuple or list of so many."""

    count: int


class Unrecorded(Exception):
    """Internal: something happened that a recording does not have."""


def axis_of(tensor: Tensor, axis: int) -> int:
    """The length of an axis."""
    return tensor.shape[axis]


def items(item: Any) -> tuple[Any, ...]:
    """The arguments of a call."""
    return tuple(map(Held, item.thing)) if isinstance(item, Held) else item.parts


def names_of(item: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    return item.names, item.parts


def refs_of(item: Any) -> list[Ref]:
    found: list[Ref] = []
    waiting = [item]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Ref):
            found.append(one)
        elif isinstance(one, Built):
            waiting += one.parts
        elif isinstance(one, tuple | list):
            waiting += one
    return found
