"""Numbers of a recording, which tell where they come from and what was decided by them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import local
from typing import Any, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class KeyRecorder(Protocol):
    """What notes what is computed of keys, and decided by numbers."""

    def number(self, function: Callable[..., int], *numbers: Any) -> Any: ...

    def decide(self, function: Callable[..., bool], *numbers: Any) -> bool: ...

    def plain_number(self, number: Any) -> Any: ...

    def fix(self, number: RecordedNumber) -> Any: ...

    def symbolic(self, shape: Any, dtype: torch.dtype) -> Tensor: ...

    def one_call(self, function: Callable[..., R], args: Any, kwargs: Any) -> R: ...

    def refuse(self, why: str) -> None: ...


class _Here(local):
    recorder: Any = None


_HERE = _Here()


def recorder() -> Any:
    """That of this thread, None where nothing is recorded."""
    return _HERE.recorder


@contextmanager
def recorded_by(one: KeyRecorder | None) -> Iterator[None]:
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
        found: R = _HERE.recorder.one_call(function, args, kwargs)
        return found

    return called


def integer(tensor: Tensor) -> int:
    """The number of an integer tensor of one; of a recording, a length, which `int` would fix.

    >>> import torch
    >>> integer(torch.tensor(3))
    3
    """
    found: Any = tensor.item()
    return found


def least(one: int, other: int) -> int:
    """The lesser number; of a recording, without a decision which one it is."""
    here = _HERE.recorder
    return min(one, other) if here is None else here.number(min, one, other)


def most(one: int, other: int) -> int:
    """The greater number, likewise."""
    here = _HERE.recorder
    return max(one, other) if here is None else here.number(max, one, other)


def _numbers(name: str, swap: bool = False) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def compute(self: RecordedNumber, other: Any) -> Any:
        if not isinstance(other, NUMBERS):
            return NotImplemented
        pair = (other, self) if swap else (self, other)
        return self.recorder.number(function, *pair)

    return compute


def _decisions(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def decide(self: RecordedNumber, other: Any) -> Any:
        if not isinstance(other, NUMBERS):
            return NotImplemented
        return self.recorder.decide(function, self, other)

    return decide


class RecordedNumber:
    """A number that a recording knows: what is computed of it is one again, what is decided by it
    is noted. Where nothing but a plain number will do (a key of a dictionary, the end of a range),
    the recording is for this one."""

    def __init__(self, recorder: KeyRecorder, value: Any, ref: Any) -> None:
        self.recorder, self.value, self.ref = recorder, value, ref

    __add__ = _numbers("add")
    __radd__ = _numbers("add", swap=True)
    __sub__ = _numbers("sub")
    __rsub__ = _numbers("sub", swap=True)
    __mul__ = _numbers("mul")
    __rmul__ = _numbers("mul", swap=True)
    __truediv__ = _numbers("truediv")
    __rtruediv__ = _numbers("truediv", swap=True)
    __floordiv__ = _numbers("floordiv")
    __rfloordiv__ = _numbers("floordiv", swap=True)
    __mod__ = _numbers("mod")
    __rmod__ = _numbers("mod", swap=True)
    __lt__ = _decisions("lt")
    __le__ = _decisions("le")
    __gt__ = _decisions("gt")
    __ge__ = _decisions("ge")
    __eq__ = _decisions("eq")
    __ne__ = _decisions("ne")

    def __neg__(self) -> Any:
        return self.recorder.number(operator.sub, 0, self)

    def __pos__(self) -> Any:
        return self

    def __bool__(self) -> bool:
        return self.recorder.decide(operator.ne, self, 0)

    def __int__(self) -> int:
        return int(self.recorder.fix(self))

    def __float__(self) -> float:
        return float(self.recorder.fix(self))

    def __hash__(self) -> int:
        self.recorder.refuse("a number is the key of a table, which may outlive the recording")
        raise AssertionError

    def __pow__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Tensor) else self.recorder.fix(self) ** other

    def __rpow__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Tensor) else other ** self.recorder.fix(self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __repr__(self) -> str:
        return repr(self.recorder.fix(self))

    def __format__(self, spec: str) -> str:
        return format(self.recorder.fix(self), spec)

    def __abs__(self) -> Any:
        return abs(self.recorder.fix(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.recorder.fix(self), digits)


class Length(RecordedNumber, torch.SymInt):
    """An integer, which torch takes for a size: it is a `SymInt`."""

    def __init__(self, recorder: KeyRecorder, value: int, ref: Any) -> None:
        RecordedNumber.__init__(self, recorder, value, ref)
        self.node = _Node(self)

    __hash__ = RecordedNumber.__hash__

    def __index__(self) -> int:
        return int(self)

    __trunc__ = __ceil__ = __floor__ = __index__

    def bit_length(self) -> int:
        return int(self).bit_length()


NUMBERS = (int, float, RecordedNumber)


def key_of(number: Any) -> Any:
    """What tells a number apart as a key, without its being read off a recording."""
    found = number.recorder.plain_number(number) if isinstance(number, RecordedNumber) else number
    return found.ref if isinstance(found, RecordedNumber) else found


class _Node:
    """What C++ asks of a `SymInt`: it wants the integer."""

    def __init__(self, length: Length) -> None:
        self.length = length

    def guard_int(self, *place: Any) -> int:
        return int(self.length)

    int_ = guard_int

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        return None

    def _graph_repr(self) -> str:
        return str(self.length.value)


INTEGERS = (int, Length)  # the types of sizes
