"""Errors of a model that is traced by `torch.compile`: shown as they are, not as dynamo's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgewise.errors import EdgewiseError

_MADE: dict[type[EdgewiseError], type[EdgewiseError]] = {}


@contextmanager
def own_errors() -> Iterator[None]:
    """Inside, an error is raised as one that a trace lets through.

    Dynamo reports what a function raises as a failure of its own, but for a few kinds, of which an
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
