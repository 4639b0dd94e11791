"""One call of a model, recorded: what is computed of its inputs, and what is decided by it.

Grounding and lowering read inputs through torch alone. Each torch call with a tensor is noted with
where its arguments come from; an integer that is read off a tensor is a `Length`, of which each
sum and each comparison is noted as well. So all that Python decided is a list of checks of numbers
and truth values. Where they hold for other inputs, the same calls are what Python would make.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgewise.layouts.recorded import Length, RecordedNumber, recorded_by
from edgewise.physical.recordings.notes import (
    Built,
    Held,
    ListOf,
    NotedCall,
    NotedDecision,
    Ref,
    Unrecorded,
    axis_of,
)
from edgewise.physical.symbols import Symbol

# f(x, n) is x
NEUTRAL = {(operator.add, 0), (operator.sub, 0), (operator.mul, 1), (operator.floordiv, 1)}
MOST = 4096  # calls of one recording
LONGEST = 64  # numbers of one list

# properties of a tensor that recordings of one kind have in common, so that nothing is noted
KIND = {"dtype", "device", "ndim", "layout", "is_cuda", "is_cpu", "is_meta", "is_sparse"}
KIND |= {"requires_grad", "is_nested", "is_quantized", "is_mps", "is_xla", "is_mkldnn"}
KIND |= {"itemsize"}
SAME = {"dim", "ndimension", "is_floating_point", "is_complex", "is_inference", "element_size"}
SAME |= {"_set_grad_enabled", "get_device"}
VIEWS = {"T", "mT", "H", "mH", "real", "data"}
READ = {"__bool__", "__int__", "__float__", "__index__", "item", "tolist", "equal", "is_nonzero"}
READ |= {"__contains__", "allclose"}
PLAIN: tuple[Any, ...] = (types.BuiltinFunctionType, type, torch.nn.Module, types.ModuleType)
PLAIN = (*PLAIN, types.MethodDescriptorType, types.WrapperDescriptorType)
VALUES: tuple[Any, ...] = (str, bytes, float, bool, complex, type(None), types.EllipsisType)
VALUES = (*VALUES, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator)


class Recording(TorchFunctionMode):
    """What a call computed of its inputs."""

    def __init__(self, inputs: Mapping[str, Tensor], alike: Mapping[str, Sequence[bool]]) -> None:
        """`alike` says for each axis of each input whether it is the same in every call."""
        super().__init__()
        self.calls: list[NotedCall] = []
        self.fixed: dict[Ref, Any] = {}  # numbers that are known to be equal to another
        self.steps: list[int | NotedDecision] = []  # numbers of calls, and decisions, in order
        self._decided: set[Any] = set()
        self._refs: dict[int, Ref] = {}
        self._known: dict[tuple[Any, ...], Any] = {}  # lengths by how they are computed
        self._things: list[Any] = []  # so that identities stay what they are
        self._originals: dict[int, Any] = {}  # what functions of ours take, without lengths
        self._sizes: dict[int, torch.Size] = {}
        self._paused = False
        self.failed = ""  # why it is of no use, also where what raised was caught
        for name, tensor in inputs.items():
            ref = self._call(NotedCall(None))
            self._known_as(tensor, ref)
            for axis, same in enumerate(alike[name]):
                if same:
                    self.fix(self._axis(tensor, axis))

    @contextmanager
    def running(self) -> Iterator[None]:
        with recorded_by(self), torch.enable_grad(), self:
            yield

    def _call(self, call: NotedCall) -> Ref:
        if len(self.calls) >= MOST:
            self.refuse(f"more than {MOST} calls")
        self.calls.append(call)
        self.steps.append(len(self.calls) - 1)
        return Ref(len(self.calls) - 1)

    def _known_as(self, thing: Any, ref: Ref) -> None:
        self._things.append(thing)
        self._refs.setdefault(id(thing), ref)

    def refuse(self, why: str) -> None:
        self.failed = self.failed or why
        raise Unrecorded(why)

    def _refused(self, why: str) -> Unrecorded:
        self.failed = self.failed or why
        return Unrecorded(why)

    # numbers

    def number(self, function: Callable[..., int], *numbers: Any) -> Any:
        """A number that follows from others; one for one way to compute it."""
        one, other = map(self.plain_number, numbers)
        if not isinstance(one, RecordedNumber) and not isinstance(other, RecordedNumber):
            return function(one, other)
        if type(other) is int and (function, other) in NEUTRAL:
            return one
        if type(one) is int and (function, one) in ((operator.add, 0), (operator.mul, 1)):
            return other
        key = function, *map(_key, (one, other))
        if key not in self._known:
            value = function(*map(_value, (one, other)))
            ref = self._call(NotedCall(function, self.encoded((one, other)), self.encoded({})))
            self._known[key] = (Length if type(value) is int else RecordedNumber)(self, value, ref)
        return self._known[key]

    def plain_number(self, number: Any) -> Any:
        while isinstance(number, RecordedNumber) and number.ref in self.fixed:
            number = self.fixed[number.ref]
        return int(number) if isinstance(number, bool) else number

    def decide(self, function: Callable[..., bool], *numbers: Any) -> bool:
        one, other = map(self.plain_number, numbers)
        if not isinstance(one, RecordedNumber) and not isinstance(other, RecordedNumber):
            return function(one, other)
        if _key(one) == _key(other):
            return function(0, 0)
        found = function(*map(_value, (one, other)))
        key = function, _key(one), _key(other)
        if key not in self._decided:
            self._decided.add(key)
            sides = self.encoded(one), self.encoded(other)
            self.steps.append(NotedDecision(function, sides[0], sides[1], found))
            if (function is operator.eq and found) or (function is operator.ne and not found):
                number, same = (one, other) if isinstance(one, RecordedNumber) else (other, one)
                if isinstance(same, int | Length):  # 3.0 is no size
                    self.fixed[number.ref] = same
        return found

    def fix(self, length: RecordedNumber) -> Any:
        self.decide(operator.eq, length, length.value)
        return length.value

    def _axis(self, tensor: Tensor, axis: int) -> Any:
        ref = self._refs[id(tensor)]
        key = axis_of, ref, axis
        if key not in self._known:
            at = self._call(NotedCall(axis_of, self.encoded((tensor, axis)), self.encoded({})))
            self._known[key] = Length(self, int(tensor.shape[axis]), at)
        return self.plain_number(self._known[key])

    def symbolic(self, shape: Any, dtype: torch.dtype) -> Tensor:
        """A meta tensor with lengths of the recording."""
        shape = torch.Size([self.plain_number(size) for size in shape])
        numbers = [size.value if isinstance(size, Length) else size for size in shape]
        paused, self._paused = self._paused, True
        try:
            found = torch.empty(numbers, dtype=dtype, device="meta")
        finally:
            self._paused = paused
        self._things.append(found)
        self._sizes[id(found)] = shape
        return found

    def shape(self, tensor: Tensor) -> torch.Size:
        """The shape of a tensor, of lengths where it is known."""
        if id(tensor) in self._sizes:
            return torch.Size([self.plain_number(size) for size in self._sizes[id(tensor)]])
        if id(tensor) not in self._refs:
            return tensor.shape
        return torch.Size([self._axis(tensor, axis) for axis in range(tensor.ndim)])

    # calls

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if any(issubclass(kind, Symbol) for kind in kinds):
            with self:  # what is written into a graph may read keys
                return Symbol.__torch_function__(func, kinds, args, kwargs)
        if name == "__get__":
            return self._got(func, args[0])
        if name in SAME:
            return func(*args, **kwargs)
        if name in ("size", "numel", "nelement", "__len__"):
            return self._measured(name, *args, **kwargs)
        if self._is_meta(args, kwargs):
            return self._described(func, args, kwargs)
        before = self._versions((args, kwargs))
        return self._noted(func, name, args, kwargs, self._computed(func, args, kwargs), before)

    def _computed(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a call gives; of one that raises there is nothing that could be run again."""
        try:
            return func(*self.plain(args), **self.plain(kwargs))
        except Exception as error:
            self.failed = self.failed or f"{type(error).__name__}: {error}"
            raise

    def _got(self, getter: Any, tensor: Tensor) -> Any:
        name = getter.__self__.__name__
        if name == "shape":
            return self.shape(tensor)
        if name in KIND:
            return getter(tensor)
        if tensor.is_meta:
            return self._described(getter, (tensor,), {})
        found = getter(tensor)
        if name not in VIEWS:
            raise self._refused(f"`Tensor.{name}`")
        return self._noted(getter, name, (tensor,), {}, found, [])

    def _described(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A call without numbers: of lengths it gets to know, the recording is for these."""
        if func is torch.empty and kwargs.keys() <= {"dtype", "device"}:
            shape = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
            return self.symbolic(shape, kwargs.get("dtype") or torch.get_default_dtype())
        self._fix_all((args, kwargs))
        return func(*self.plain(args), **self.plain(kwargs))

    def _fix_all(self, things: Any) -> None:
        waiting = [things]
        while waiting:
            thing = waiting.pop()
            if isinstance(thing, RecordedNumber):
                self.fix(thing)
            elif isinstance(thing, Tensor):
                waiting += self._sizes.get(id(thing), ())
            elif isinstance(thing, tuple | list):
                waiting += thing
            elif isinstance(thing, dict):
                waiting += thing.values()
            elif isinstance(thing, slice):
                waiting += [thing.start, thing.stop, thing.step]

    def _measured(self, name: str, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        shape = self.shape(tensor)
        if name == "size":
            return shape[args[0] if args else kwargs["dim"]] if args or kwargs else shape
        if name in ("numel", "nelement"):
            found: Any = 1
            for size in shape:
                found = found * size
            return found
        return int(shape[0])

    def one_call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A function that is noted as one call."""
        if self._paused:
            return function(*args, **kwargs)
        self._paused = True
        try:
            before = self._versions((args, kwargs))
            with recorded_by(None):
                found = self._computed(function, args, kwargs)
            return self._noted(function, "", args, kwargs, found, before)
        finally:
            self._paused = False

    def _noted(
        self, func: Any, name: str, args: Any, kwargs: Any, found: Any, before: Sequence[Any]
    ) -> Any:
        call = NotedCall(func, self.encoded(tuple(args)), self.encoded(dict(kwargs)))
        call.detached = not torch.is_grad_enabled()
        if name in READ and not any(id(t) in self._refs for t, _ in before):
            return found  # of a constant
        for tensor, version in before:
            call.read.add(_memory(tensor))
            if _version(tensor) != version:
                if id(tensor) not in self._refs:
                    raise self._refused("a constant is written")
                call.written.add(_memory(tensor))
        ref = self._call(call)
        if name in ("__setitem__", "__delitem__", "resize_") and found is None:
            return None
        noted = self._note(call, found, ref, not name)
        return int(noted) if name in ("__int__", "__index__") else noted

    def _note(self, call: NotedCall, thing: Any, ref: Ref, ours: bool) -> Any:
        """Know a result and its parts; the same with lengths for numbers."""
        if isinstance(thing, Tensor):
            if ours and ref.path:
                call.checks.append((ref, Tensor))
            call.made.add(_memory(thing))
            self._known_as(thing, ref)
            return thing
        if isinstance(thing, VALUES):
            call.checks.append((ref, thing))
            return thing
        if isinstance(thing, int):
            return Length(self, thing, ref)
        if isinstance(thing, tuple | list):
            if len(thing) > LONGEST:
                raise self._refused("a long list")
            call.checks.append((ref, ListOf(len(thing))))
            parts = [
                self._note(call, part, Ref(ref.call, (*ref.path, at)), ours)
                for at, part in enumerate(thing)
            ]
            if all(part is before for part, before in zip(parts, thing, strict=True)):
                return thing
            return type(thing)(parts) if type(thing) in (tuple, list) else tuple(parts)
        if not ours or not is_dataclass(thing):
            raise self._refused(f"a result of type {type(thing).__name__}")
        call.checks.append((ref, type(thing)))
        copy = object.__new__(type(thing))
        for each in fields(thing):  # what was worked out later follows from these
            inner = getattr(thing, each.name)
            part = self._note(call, inner, Ref(ref.call, (*ref.path, each.name)), ours)
            object.__setattr__(copy, each.name, part)
        self._known_as(copy, ref)
        self._originals[id(copy)] = thing
        return copy

    # what calls were given

    def plain(self, thing: Any) -> Any:
        """A thing with numbers for lengths, to compute with."""
        if isinstance(thing, RecordedNumber):
            return thing.value
        if type(thing) in (tuple, list):
            return type(thing)([self.plain(part) for part in thing])
        if isinstance(thing, torch.Size):
            return torch.Size([self.plain(part) for part in thing])
        if isinstance(thing, slice):
            return slice(*map(self.plain, (thing.start, thing.stop, thing.step)))
        if type(thing) is dict:
            return {name: self.plain(part) for name, part in thing.items()}
        if isinstance(thing, VALUES):
            return thing
        if id(thing) in self._originals:
            return self._originals[id(thing)]
        if is_dataclass(thing) and not isinstance(thing, type):
            inner = {part.name: getattr(thing, part.name) for part in fields(thing)}
            plain = {name: self.plain(part) for name, part in inner.items()}
            if any(plain[name] is not part for name, part in inner.items()):
                copy = object.__new__(type(thing))
                for name, part in plain.items():
                    object.__setattr__(copy, name, part)
                return copy
        return thing

    def encoded(self, thing: Any) -> Any:
        """A thing by where it comes from."""
        if isinstance(thing, RecordedNumber):
            thing = self.plain_number(thing)
            return thing.ref if isinstance(thing, RecordedNumber) else Held(thing)
        if isinstance(thing, (int, *VALUES)):
            return Held(thing)
        if id(thing) in self._refs:
            return self._refs[id(thing)]
        if isinstance(thing, Symbol):
            raise self._refused("a symbol")
        if isinstance(thing, Tensor):
            self._fix_all(thing)  # if it has sizes of the recording
            if thing.is_floating_point() and not thing.is_meta and thing.numel() > 1:
                raise self._refused("values from elsewhere")
            return Held(thing)
        if isinstance(thing, slice):
            ends = [self.encoded(part) for part in (thing.start, thing.stop, thing.step)]
            return _built_or_held(thing, Built(slice, tuple(ends)))
        if isinstance(thing, tuple | list):
            kind = list if isinstance(thing, list) else tuple
            if kind is tuple and type(thing) not in (tuple, torch.Size) and _named(thing):
                raise self._refused(f"a {type(thing).__name__}")
            return _built_or_held(thing, Built(kind, tuple([self.encoded(part) for part in thing])))
        if type(thing) is dict:
            names = tuple(thing)
            parts = [self.encoded(thing[name]) for name in names]
            return _built_or_held(thing, Built(dict, tuple(parts), names))
        if isinstance(thing, PLAIN) and not isinstance(getattr(thing, "__self__", None), Tensor):
            return Held(thing)
        return self._object(thing)

    def _object(self, thing: Any) -> Any:
        """A thing of ours: as it is where no part of it is known, else built of its fields."""
        if not self._reaches(thing):
            return Held(thing)
        if not is_dataclass(thing):
            raise self._refused(f"a {type(thing).__name__}")
        names = tuple(part.name for part in fields(thing) if part.init)
        if len(names) < len(fields(thing)):
            raise self._refused(f"a {type(thing).__name__} with fields of its own")
        return Built(type(thing), tuple([self.encoded(getattr(thing, n)) for n in names]), names)

    def _reaches(self, thing: Any) -> bool:
        """Whether any part of a thing is known to the recording."""
        seen: dict[int, Any] = {}
        waiting = [thing]
        while waiting:
            one = waiting.pop()
            if id(one) in seen or isinstance(one, (str, bytes, float, bool, complex, type(None))):
                continue
            seen[id(one)] = one
            if isinstance(one, RecordedNumber):
                if isinstance(self.plain_number(one), RecordedNumber):
                    return True
                continue
            if id(one) in self._refs or id(one) in self._sizes:
                return True
            if isinstance(one, (type, types.ModuleType, torch.nn.Module, Tensor, int)):
                continue
            if isinstance(one, dict):
                waiting += [*one.keys(), *one.values()]
            elif isinstance(one, (tuple, list, set, frozenset)):
                waiting += one
            elif isinstance(one, types.FunctionType):
                waiting += [cell.cell_contents for cell in one.__closure__ or ()]
                waiting += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
            elif isinstance(one, types.MethodType):
                waiting += [one.__self__, one.__func__]
            elif isinstance(one, types.BuiltinFunctionType):
                waiting.append(one.__self__)
            elif hasattr(one, "func") and hasattr(one, "keywords"):  # a partial
                waiting += [one.func, *one.args, *one.keywords.values()]
            else:
                waiting += list(getattr(one, "__dict__", {}).values())
                for kind in type(one).__mro__:
                    names = getattr(kind, "__slots__", ())
                    for slot in (names,) if isinstance(names, str) else names:
                        if hasattr(one, slot):
                            waiting.append(getattr(one, slot))
        return False

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

    def _is_meta(self, args: Any, kwargs: Any) -> bool:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "meta":
            return True
        return any(
            isinstance(part, Tensor) and part.is_meta
            for item in (*args, *kwargs.values())
            for part in (item if isinstance(item, tuple | list) else (item,))
        )

    def finish(self) -> None:
        """Let go of tensors."""
        self._things.clear()
        self._refs.clear()
        self._originals.clear()
        self._sizes.clear()


def _built_or_held(thing: Any, built: Built) -> Any:
    """A thing as it is where all of its parts are."""
    if all(isinstance(part, Held) for part in built.parts) and built.kind is not list:
        if built.kind is dict:
            return built
        return Held(
            built.kind(part.thing for part in built.parts) if built.kind is tuple else thing
        )
    return built


def _named(thing: Any) -> bool:
    return hasattr(thing, "_fields")


def _value(number: Any) -> Any:
    return number.value if isinstance(number, RecordedNumber) else number


def _key(number: Any) -> Any:
    return number.ref if isinstance(number, RecordedNumber) else (type(number), number)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _memory(tensor: Tensor) -> int:
    return 0 if tensor.is_meta else int(tensor.untyped_storage()._cdata)
