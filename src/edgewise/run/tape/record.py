"""Writing down the tensor operations of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

SAME = {Tensor.to, torch.as_tensor}  # these give their argument back if precision stays
RESHAPES = {Tensor.reshape, Tensor.view, Tensor.flatten, Tensor.squeeze, Tensor.unsqueeze}
ORDERS = {Tensor.transpose, Tensor.permute}
VIEWS = {*RESHAPES, *ORDERS, Tensor.expand, Tensor.to}
SIZES = {"size", "dim", "numel", "__len__", "is_floating_point", "is_complex", "is_neg"}
PROPERTIES = {"shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_sparse", "is_meta"}


@dataclass(frozen=True)
class Slot:
    """A value that differs from run to run, by its name."""

    name: str


@dataclass(frozen=True)
class Operation:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]  # slots, constant tensors and anything else that is constant
    options: dict[str, Any]
    results: tuple[Slot, ...]
    many: bool  # whether the results come as a tuple or list
    reads: tuple[Slot, ...]  # the slots among arguments and options


class Refused(Exception):
    """Internal: another run may not repeat this one."""


class Recorder(TorchFunctionMode):
    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self.slots: Any = WeakTensorKeyDictionary()
        self.shapes: dict[Slot, torch.Size] = {}
        self.base: dict[Slot, Slot] = {}  # a reshaped value → what it is a form of
        self.operations: list[Operation] = []
        self.refused = False
        for number, tensor in enumerate(tensors):
            self._hold(tensor, Slot(f"x{number}"))

    def _hold(self, tensor: Tensor, slot: Slot) -> None:
        self.slots[tensor] = slot
        self.shapes[slot] = tensor.shape

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        result = func(*args, **options)
        if not self.refused:
            try:
                self._note(func, args, options, result)
            except Refused:
                self.refused = True
        return result

    def _note(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        name = getattr(function, "__name__", "")
        if name in SIZES or (name == "__get__" and function.__self__.__name__ in PROPERTIES):
            return
        reads: list[Slot] = []
        arguments, options = self._named(args, reads), self._named(kwargs, reads)
        live = bool(reads)
        results = (result,) if isinstance(result, Tensor) else result
        tensors = isinstance(results, tuple | list) and all(isinstance(r, Tensor) for r in results)
        if _writes(name, kwargs) or not tensors:  # into a tensor, or a number read off one
            if live:
                raise Refused
            return
        if args and result is args[0] and function in SAME:
            return
        if not live and all(_constant(function, r) for r in results):
            return
        if not torch.is_grad_enabled() or transformed():  # inside of what has its own gradients
            raise Refused
        many = not isinstance(result, Tensor)
        self._record(function, arguments, options, results, many, tuple(reads))

    def _record(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        results: Sequence[Tensor],
        many: bool,
        reads: tuple[Slot, ...],
    ) -> None:
        names = tuple(Slot(f"t{len(self.shapes) + n}") for n in range(len(results)))
        if self._reshapes(function, arguments, results):
            base = self.base.get(arguments[0], arguments[0])
            if self.shapes[base] == results[0].shape:
                self.slots[results[0]] = base
                return
            function, arguments, options = Tensor.reshape, (base, tuple(results[0].shape)), {}
            self.base[names[0]], reads = base, (base,)
        self.operations.append(Operation(function, arguments, options, names, many, reads))
        for slot, tensor in zip(names, results, strict=True):
            self._hold(tensor, slot)

    def _reshapes(self, function: Any, arguments: tuple[Any, ...], results: Any) -> bool:
        """Whether a value keeps its elements, in their order."""
        if not arguments or not isinstance(arguments[0], Slot) or len(results) != 1:
            return False
        if function is Tensor.__getitem__:
            basic = all(i is None or isinstance(i, int | slice) for i in leaves(arguments[1:]))
            return basic and results[0].numel() == self.shapes[arguments[0]].numel()
        if function is Tensor.expand:
            return bool(results[0].numel() == self.shapes[arguments[0]].numel())
        if function in ORDERS:
            return _in_order(function, self.shapes[arguments[0]], arguments[1:])
        return function in RESHAPES and not any(isinstance(a, torch.dtype) for a in arguments)

    def _named(self, item: Any, reads: list[Slot]) -> Any:
        """Arguments with slots for the tensors that differ from run to run, noted in `reads`."""
        match item:
            case Tensor():
                slot = self.slots.get(item)
                if slot is None:
                    return item
                reads.append(slot)
                return slot
            case None | bool() | int() | float() | torch.dtype():
                return item
            case torch.Size():
                return tuple(item)
            case tuple():
                return tuple([self._named(part, reads) for part in item])
            case list():
                return [self._named(part, reads) for part in item]
            case dict():
                return {key: self._named(part, reads) for key, part in item.items()}
        held = vars(item).values() if hasattr(item, "__dict__") else ()
        if any(isinstance(part, Tensor) and part in self.slots for part in held):
            raise Refused
        return item


def _in_order(function: Any, shape: torch.Size, axes: tuple[Any, ...]) -> bool:
    """Whether axes of length 1 alone change their places."""
    if not axes:  # named, which nobody here does
        return False
    order = list(range(len(shape)))
    if function is Tensor.transpose:
        first, second = axes
        order[first], order[second] = order[second], order[first]
    else:
        order = [order[axis] for axis in leaves(axes)]
    long = [axis for axis in order if shape[axis] != 1]
    return long == sorted(long)


def transformed() -> bool:
    """Whether a function transformation, such as `torch.vmap`, is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def leaves(item: Any) -> Iterator[Any]:
    """What tuples, lists and dicts hold, however deep."""
    match item:
        case tuple() | list():
            for part in item:
                yield from leaves(part)
        case dict():
            yield from leaves(tuple(item.values()))
        case _:
            yield item


def _writes(name: str, options: dict[str, Any]) -> bool:
    own = name.endswith("_") and not name.endswith("__")
    return own or name == "__setitem__" or name.startswith("__i") or "out" in options


def _constant(function: Any, result: Tensor) -> bool:
    """Whether what came of constants is one: keys, and views of what is there."""
    return not result.is_floating_point() or (function in VIEWS and not result.requires_grad)
