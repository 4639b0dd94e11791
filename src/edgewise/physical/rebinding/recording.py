"""One call of a model, recorded: every torch call that reads keys, and every number read off one.

What a plan becomes depends on keys through three things only: tensors that are computed of them,
numbers that are read off those (a length, a truth value), and decisions of Python by such numbers.
The first two are noted here, in order; decisions are the same where truth values are, and lengths
compare with one another in the same way.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgewise.layouts.recorded import recorded_by
from edgewise.physical.rebinding.lengths import order_of
from edgewise.physical.symbols import Symbol

MOST = 64  # numbers of one list
LARGEST = 1 << 18  # beyond it, a call takes much longer than grounding does

# what tells of a tensor without its numbers; lengths are numbers, which are explained by others
PLAIN = {"size", "stride", "dim", "numel", "__len__", "is_floating_point", "is_complex"}
PLAIN |= {"element_size", "is_contiguous", "is_inference", "is_same_size", "get_device"}
PLAIN |= {"storage_offset", "ndimension", "nelement", "_set_grad_enabled", "device"}
READ = {"__bool__", "__int__", "__float__", "__index__", "item", "tolist", "equal", "is_nonzero"}
READ |= {"__contains__", "allclose"}
# the lengths of their results depend on numbers
SELECTING = {"nonzero", "unique", "unique_consecutive", "masked_select", "argwhere", "bincount"}
SELECTING |= {"repeat_interleave", "where", "__getitem__", "histc", "cartesian_prod"}
CONSTANTS: tuple[Any, ...] = (types.FunctionType, types.BuiltinFunctionType, type, torch.nn.Module)
CONSTANTS += (types.MethodDescriptorType, types.WrapperDescriptorType)
KNOWN = (Tensor, bool, int, type(None), tuple)  # fields that are looked into
VALUES = (str, float, torch.dtype, torch.device, torch.layout, torch.memory_format)


@dataclass(frozen=True)
class Ref:
    """A result of a recorded call, or a part of it: an item (a number) or a field (a name)."""

    call: int
    path: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class NumberAt:
    """The number at this place among those of a recording."""

    at: int


@dataclass(frozen=True)
class Held:
    """A thing that is the same in every call."""

    thing: Any


@dataclass(frozen=True)
class Built:
    """A tuple, list, slice or dataclass of other things; `names` are those of fields."""

    kind: Any
    parts: tuple[Any, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Length:
    """That of a list."""

    count: int


@dataclass(frozen=True)
class ReadNumber:
    """A number that is read off a result: the result itself, or the length of one of its axes."""

    ref: Ref
    axis: int | None = None


@dataclass(eq=False)
class RecordedCall:
    """A function with what it was given; `checks` are truth values among its results, kinds of
    things and lengths of lists. Of `ours`, results may be of another kind."""

    function: Any
    args: Any = ()
    kwargs: Any = ()
    checks: list[tuple[Ref, Any]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)  # places of the numbers that it gives
    made: set[int] = field(default_factory=set)  # memory of results
    written: set[int] = field(default_factory=set)  # memory that it writes into
    read: set[int] = field(default_factory=set)
    ours: bool = False


class Unrecorded(Exception):
    """Internal: something happened that a recording does not have."""


class Recording(TorchFunctionMode):
    """What a call computed of keys. `marks` are all that must agree for two recordings to be of one
    kind; `numbers` are those that may differ, read (`sources`) or used."""

    def __init__(self, keys: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.calls: list[RecordedCall] = []
        self.marks: list[Any] = []
        self.numbers: list[int] = []
        self.sources: dict[int, ReadNumber] = {}
        self.failed = ""
        self._refs: dict[int, Ref] = {}
        self._held: list[Any] = []  # so that identities stay what they are
        self._values: set[int] = set()
        self._paused = False
        for each in (keys, values):
            for tensor in each.values():
                call = self._call(RecordedCall(None))
                self._note(call, tensor, Ref(len(self.calls) - 1), lengths=True)
        self._values = {id(tensor) for tensor in values.values()}

    @contextmanager
    def running(self) -> Iterator[None]:
        with recorded_by(self), self:
            yield

    def _call(self, call: RecordedCall) -> RecordedCall:
        self.calls.append(call)
        return call

    def fail(self, why: str) -> None:
        self.failed = self.failed or why

    # calls

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._paused or self.failed:
            return func(*args, **kwargs)
        if any(issubclass(kind, Symbol) for kind in kinds):
            with self:  # what is written into a graph may read keys
                return Symbol.__torch_function__(func, kinds, args, kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._got(func, args[0])
        if name in PLAIN:
            return func(*args, **kwargs)
        before = self._versions((args, kwargs))
        found = func(*args, **kwargs)
        if self._is_meta(found):
            return found
        try:
            self._noted(func, name, args, kwargs, found, before)
        except Unrecorded as error:
            self.fail(str(error))
        return found

    def _got(self, getter: Any, tensor: Tensor) -> Any:
        found = getter(tensor)
        if isinstance(found, Tensor) and not self._is_meta(found):
            try:
                self._noted(getter, "__get__", (tensor,), {}, found, [])
            except Unrecorded as error:
                self.fail(str(error))
        return found

    def one_call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A function that is noted as one call."""
        if self._paused or self.failed:
            return function(*args, **kwargs)
        self._paused = True
        try:
            before = self._versions((args, kwargs))
            with recorded_by(None):
                found = function(*args, **kwargs)
            self._noted(function, "", args, kwargs, found, before)
        except Unrecorded as error:
            self.fail(str(error))
        finally:
            self._paused = False
        return found

    def _noted(
        self, func: Any, name: str, args: Any, kwargs: Any, found: Any, before: Sequence[Any]
    ) -> None:
        readable = isinstance(found, Tensor | tuple | list) or name in READ or not name
        if not readable and not (name == "__setitem__" and found is None):
            raise Unrecorded(f"`{name}`")
        call = RecordedCall(func, ours=not name)
        self.marks.append(func)
        call.args, call.kwargs = self.encoded(tuple(args)), self.encoded(dict(kwargs))
        for tensor, version in before:
            call.read.add(_memory(tensor))
            if _version(tensor) != version:
                call.written.add(_memory(tensor))
        self._call(call)
        lengths = not name or (name in SELECTING and _selects(name, args, kwargs))
        self._note(call, found, Ref(len(self.calls) - 1), lengths)

    def _note(self, call: RecordedCall, thing: Any, ref: Ref, lengths: bool) -> None:
        """Know a result, and its parts."""
        if isinstance(thing, Tensor):
            self._held.append(thing)
            if call.ours and ref.path:
                call.checks.append((ref, Tensor))
            call.made.add(_memory(thing))
            if not (id(thing) in self._refs and lengths is False):
                self._refs.setdefault(id(thing), ref)
            self.marks.append((thing.dtype, thing.ndim))
            for axis in range(thing.ndim if lengths else 0):
                self._source(call, ReadNumber(ref, axis), thing.shape[axis])
        elif thing is None or isinstance(thing, bool | str | float | torch.dtype):
            call.checks.append((ref, thing))
            self.marks.append(thing)
        elif isinstance(thing, int):
            self._source(call, ReadNumber(ref), thing)
        elif isinstance(thing, tuple | list):
            if len(thing) > MOST:
                raise Unrecorded("a long list")
            self.marks.append((type(thing), len(thing)))
            if call.ours:
                call.checks.append((ref, type(thing)))
            if call.ours or call.function is Tensor.tolist:
                call.checks.append((ref, Length(len(thing))))
            for at, part in enumerate(thing):
                self._note(call, part, Ref(ref.call, (*ref.path, at)), lengths)
        else:  # which only other functions of ours look into
            self._held.append(thing)
            self._refs[id(thing)] = ref
            self.marks.append(type(thing))
            call.checks.append((ref, type(thing)))
            if is_dataclass(thing):
                for part in fields(thing):
                    inner = getattr(thing, part.name)
                    if isinstance(inner, KNOWN) or is_dataclass(inner):
                        self._note(call, inner, Ref(ref.call, (*ref.path, part.name)), lengths)

    def _source(self, call: RecordedCall, source: ReadNumber, number: int) -> None:
        if not -LARGEST <= number <= LARGEST:
            raise Unrecorded("a large number")
        call.sources.append(len(self.numbers))
        self.sources[len(self.numbers)] = source
        self.numbers.append(number)

    def finish(self) -> Any:
        """Let go of tensors; what recordings of one kind have in common."""
        self._held = [thing for thing in self._held if isinstance(thing, CONSTANTS)]
        self._refs.clear()
        read = [self.numbers[at] for at in sorted(self.sources)]
        return (*self.marks, *order_of(read))

    # what calls were given

    def encoded(self, thing: Any) -> Any:
        """A thing by where it comes from."""
        known = self._refs.get(id(thing))
        if known is not None and not isinstance(thing, int | str | float | bool | None):
            if id(thing) in self._values:
                raise Unrecorded("values")
            self.marks.append(known)
            return known
        match thing:
            case None | bool() | types.EllipsisType():
                self.marks.append(thing)
                return Held(thing)
            case int():
                self.marks.append(int)
                self.numbers.append(int(thing))
                return NumberAt(len(self.numbers) - 1)
            case Tensor():
                raise Unrecorded("a tensor from elsewhere")
            case slice():
                self.marks.append(slice)
                return Built(slice, (*map(self.encoded, (thing.start, thing.stop, thing.step)),))
            case tuple() | list():
                kind = list if isinstance(thing, list) else tuple
                if len(thing) > MOST:
                    raise Unrecorded("a long list")
                self.marks.append((kind, len(thing)))
                return Built(kind, tuple([self.encoded(part) for part in thing]))
            case dict():
                names = tuple(thing)
                self.marks.append(names)
                return Built(dict, tuple([self.encoded(thing[name]) for name in names]), names)
        if isinstance(thing, VALUES):
            self.marks.append((type(thing), repr(thing)))
            return Held(thing)
        if isinstance(thing, CONSTANTS):
            self._held.append(thing)
            self.marks.append(id(thing))
            return Held(thing)
        if is_dataclass(thing):
            names = tuple(part.name for part in fields(thing) if part.init)
            self.marks.append((type(thing), names))
            parts = tuple([self.encoded(getattr(thing, name)) for name in names])
            return Built(type(thing), parts, names)
        raise Unrecorded(f"a {type(thing).__name__}")

    def _versions(self, things: Any) -> list[tuple[Tensor, int]]:
        found: list[tuple[Tensor, int]] = []
        waiting = [things]
        while waiting:
            thing = waiting.pop()
            if isinstance(thing, Tensor):
                if not thing.is_meta:
                    found.append((thing, _version(thing)))
            elif isinstance(thing, tuple | list):
                waiting += thing
            elif isinstance(thing, dict):
                waiting += thing.values()
            elif is_dataclass(thing) and not isinstance(thing, type):
                waiting += [getattr(thing, part.name) for part in fields(thing)]
        return found

    @staticmethod
    def _is_meta(found: Any) -> bool:
        return isinstance(found, Tensor) and (found.is_meta or isinstance(found, Symbol))


def _selects(name: str, args: Any, kwargs: Any) -> bool:
    """Whether the length of a result depends on numbers."""
    if name == "__getitem__":
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(p, Tensor) and p.dtype in (torch.bool, torch.uint8) for p in parts)
    if name == "repeat_interleave":
        return "output_size" not in kwargs and isinstance(args[-1], Tensor)
    return name != "where" or len(args) == 1


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
