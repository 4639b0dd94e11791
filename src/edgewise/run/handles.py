"""Things by name: what is called while a trace is made takes strings and numbers only."""

from __future__ import annotations

import itertools
from typing import Any
from weakref import WeakValueDictionary

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
