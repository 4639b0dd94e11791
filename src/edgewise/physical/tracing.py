"""What a trace of Dynamo needs: things by name, errors that it lets through, autocast."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import torch

from edgewise.errors import EdgewiseError

_NUMBERS = itertools.count()
_HELD: WeakValueDictionary[str, Any] = WeakValueDictionary()


def handle(thing: Any) -> str:
    """A name for a thing, for as long as there is the thing."""
    name = f"{type(thing).__name__} {next(_NUMBERS)}"
    _HELD[name] = thing
    return name


def held(name: str) -> Any:
    """The thing of a name."""
    return _HELD[name]


_MADE: dict[type[EdgewiseError], type[EdgewiseError]] = {}


@contextmanager
def own_errors() -> Iterator[None]:
    """Inside, an error is raised as one that a trace lets through.

    Dynamo reports what a function raises as a failure of its own, but for some kinds, of which an
    assertion is the only one that is not its own.
    """
    try:
        yield
    except EdgewiseError as error:
        error.__class__ = _let_through(type(error))
        raise


def _let_through(kind: type[EdgewiseError]) -> type[EdgewiseError]:
    if issubclass(kind, AssertionError):
        return kind
    if kind not in _MADE:
        names = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        _MADE[kind] = type(kind.__name__, (kind, AssertionError), names)
    return _MADE[kind]


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The precision of autocast, where it is on."""
    return torch.get_autocast_dtype(device.type) if autocasts(device) else None


def is_transformed() -> bool:
    """Whether functions or modes of torch look at what is computed."""
    looking = torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
    return bool(looking) or torch._C._functorch.peek_interpreter_stack() is not None


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for a device; shapes alone have none."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)
