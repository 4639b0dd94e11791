"""Functions of index tensors that a recording of grounding has as one call, not as their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import local
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class CallLog(Protocol):
    """What notes calls while a plan is grounded and lowered."""

    def one_call(self, function: Callable[..., R], args: Any, kwargs: Any) -> R: ...


class _Here(local):
    recorder: Any = None


_HERE = _Here()


def recorder() -> Any:
    """That of this thread, None where nothing is recorded."""
    return _HERE.recorder


@contextmanager
def recorded_by(one: CallLog | None) -> Iterator[None]:
    """Inside, calls are noted by a recorder."""
    before, _HERE.recorder = _HERE.recorder, one
    try:
        yield
    finally:
        _HERE.recorder = before


def one_call(function: Callable[P, R]) -> Callable[P, R]:
    """A function of tensors and numbers, and of what such functions give, that depends on nothing
    else: it may read numbers in NumPy, and decide by them, since it is called again as a whole.

    >>> @one_call
    ... def largest(x):
    ...     return int(x.numpy().max())
    >>> import torch
    >>> largest(torch.tensor([3, 5]))
    5
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if _HERE.recorder is None:
            return function(*args, **kwargs)
        return _HERE.recorder.one_call(function, args, kwargs)

    return called
