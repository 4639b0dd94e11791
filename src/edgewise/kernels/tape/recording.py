"""What torch computes, written down as instructions over one array of numbers: a tape.

The elements of every storage have addresses on the tape. Operators that only move elements, such as
gathers by indices that stay, move addresses and cost nothing; what does not depend on weights is
computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves, tree_map

from edgewise.kernels.tape.operators import COMPUTE, CREATE, MOVE, PAD, SCATTER
from edgewise.kernels.tape.writer import Code, NotRecordedError, TapeWriter


@dataclass(eq=False)
class Memory:
    """The addresses of the elements of a storage; None for constants that nothing has read."""

    holder: Tensor  # keeps the storage, so that its place in memory stays its own
    addresses: Tensor | None = None
    constant: bool = False
    owned: bool = False  # whether no other storage has the same addresses


class Recorder(TorchDispatchMode):
    """Writes down what is computed of weights inside of `with recorder:`."""

    def __init__(self, weights: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.tape = TapeWriter()
        self.memory: dict[int, Memory] = {}
        self.dtype = weights[0].dtype
        for tensor in (*weights, *inputs):
            flat = _storage(tensor)
            if not tensor.is_contiguous() or len(flat) != tensor.numel():
                raise NotRecordedError("a weight or an input is a view of a tensor")
            if tensor.dtype != self.dtype:
                raise NotRecordedError("values have several precisions")
            if tensor.numel() and _place(tensor) not in self.memory:
                self.memory[_place(tensor)] = Memory(flat, self.tape.fresh(len(flat)))
        self.before = set(self.memory)

    def addresses(self, thing: Any) -> Tensor:
        """The address of each element of a tensor, or of a number."""
        if not isinstance(thing, Tensor):
            return self.tape.number(float(thing))
        if not thing.numel():
            return torch.zeros(thing.shape, dtype=torch.int64)
        if thing.is_floating_point() and thing.dtype != self.dtype:
            raise NotRecordedError("values have several precisions")
        found = self.memory.get(_place(thing))
        if found is None:
            found = self.memory[_place(thing)] = Memory(_storage(thing), constant=True)
        if found.addresses is None:
            found.addresses = self.tape.constant(found.holder, found.holder.numel())
        return found.addresses.as_strided(thing.shape, thing.stride(), thing.storage_offset())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotRecordedError(f"`{name}` draws random numbers")
        if func._schema.is_mutable and not self._may_write(args[0]):
            raise NotRecordedError("a tensor made before the recording is written")
        plain = name if name.startswith("_") else name.removesuffix("_")
        if name in CREATE or all(map(self._is_constant, tree_leaves((args, kwargs)))):
            return self._compute_once(func, args, kwargs)
        if func.is_view and not func._schema.is_mutable:
            return func(*args, **kwargs)
        if name in MOVE:
            return self._move(func, args, kwargs)
        if plain in SCATTER:
            return self._scatter(func, args, kwargs, plain)
        if plain in COMPUTE:
            return self._compute(func, args, kwargs, plain)
        if name in PAD:
            return self._pad(func, args, kwargs)
        decomposed = decomposition_table.get(func)
        with self:
            found = (decomposed or func.decompose)(*args, **kwargs)
        if found is NotImplemented:
            raise NotRecordedError(f"`{name}` has no instructions")
        return found

    def _may_write(self, tensor: Tensor) -> bool:
        place = _place(tensor)
        return not tensor.numel() or (place in self.memory and place not in self.before)

    def _is_constant(self, thing: Any) -> bool:
        if not isinstance(thing, Tensor) or not thing.numel():
            return True
        found = self.memory.get(_place(thing))
        return found is None or found.constant

    def _compute_once(self, func: Any, args: Any, kwargs: Any) -> Any:
        before = {_place(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        found = func(*args, **kwargs)
        for tensor in tree_leaves(found):
            if not isinstance(tensor, Tensor) or not tensor.numel():
                continue
            if _place(tensor) not in before or func._schema.is_mutable:
                self.memory[_place(tensor)] = Memory(_storage(tensor), constant=True)
        return found

    def _move(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Addresses go where elements go."""
        if kwargs.get("dtype") not in (None, self.dtype):
            raise NotRecordedError("values are cast to another precision")
        options = {key: value for key, value in kwargs.items() if key != "dtype"}
        places = func(*tree_map(self._shared, args), **tree_map(self._shared, options))
        found = func(*args, **kwargs)
        before = {_place(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for tensor, here in zip(tree_leaves(found), tree_leaves(places), strict=True):
            if _place(tensor) not in before:
                self._bind(tensor, here, owned=False)
        return found

    def _shared(self, thing: Any) -> Any:
        """The addresses of values, which another storage will have too; indices as they are."""
        if not isinstance(thing, Tensor) or (
            self._is_constant(thing) and not thing.is_floating_point()
        ):
            return thing
        places = self.addresses(thing)
        if thing.numel():
            self.memory[_place(thing)].owned = False
        return places

    def _pad(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Gradients of views: zeros around what they are gradients of. Addresses are moved from 1
        on, so that a 0 is none."""
        places = func(self._shared(args[0]) + 1, *args[1:], **kwargs) - 1
        places = torch.where(places < 0, self.tape.number(0.0), places)
        found = func(*args, **kwargs)
        self._bind(found, places, owned=False)
        return found

    def _compute(self, func: Any, args: Any, kwargs: Any, name: str) -> Any:
        made = COMPUTE[name](self, name, *args, **kwargs)
        found = func(*args, **kwargs)
        if found.is_floating_point() and found.dtype != self.dtype:
            raise NotRecordedError("values have several precisions")
        self._lend(args, kwargs)
        return self._give(func, found, made.expand(found.shape))

    def _scatter(self, func: Any, args: Any, kwargs: Any, name: str) -> Any:
        """Values are added at places, or put there; in a copy, or where they are."""
        start = self.addresses(args[0])
        positions = torch.arange(start.numel()).reshape(start.shape)
        moves = SCATTER[name](self, positions, *args[1:], **kwargs)
        merged = self.tape.merged(start, moves)
        if merged is not None:
            self._lend(args, kwargs)
            return self._give(func, func(*args, **kwargs), merged)
        writes = func._schema.is_mutable
        target = self._own(args[0]) if writes else self.tape.copy(start)
        for op, places, values in moves:
            self.tape.merge_at(op, target.reshape(-1)[places], values)
        found = func(*args, **kwargs)
        if not writes:
            self._bind(found, target, owned=True)
        return found

    def _lend(self, *things: Any) -> None:
        """A result may be at the addresses of what it was computed of: nothing is written there."""
        for thing in tree_leaves(things):
            if isinstance(thing, Tensor) and _place(thing) in self.memory:
                self.memory[_place(thing)].owned = False

    def _give(self, func: Any, found: Tensor, places: Tensor) -> Tensor:
        """The result of an operator, at addresses that others may have; one that is written in
        place has them from now on."""
        if not func._schema.is_mutable:
            self._bind(found, places, owned=False)
        elif found.numel():
            self.addresses(found)
            memory = self.memory[_place(found)]
            assert memory.addresses is not None
            memory.addresses = memory.addresses.clone()
            memory.constant = memory.owned = False
            self.addresses(found).copy_(places)
        return found

    def _own(self, tensor: Tensor) -> Tensor:
        """The addresses of a tensor that an operator writes into: no other storage has them."""
        self.addresses(tensor)
        memory = self.memory[_place(tensor)]
        if not memory.owned:
            assert memory.addresses is not None
            memory.addresses = self.tape.copy(memory.addresses)
            memory.constant, memory.owned = False, True
        return self.addresses(tensor)

    def call(self, code: Code, work: Tensor) -> None:
        """Instructions on a tensor that is all of its storage; its numbers stay as they are."""
        self._own(work)
        self.tape.call(code, self.addresses(work))

    def _bind(self, tensor: Tensor, places: Tensor, owned: bool) -> None:
        """Give a new tensor its addresses."""
        if tensor.numel():
            flat = _storage(tensor)
            held = torch.zeros(len(flat), dtype=torch.int64)
            view = held.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            view.copy_(places)
            self.memory[_place(tensor)] = Memory(flat, held, owned=owned)


def current_recorder() -> Recorder | None:
    """The recorder that writes down what is computed now."""
    mode = _get_current_dispatch_mode()
    return mode if isinstance(mode, Recorder) else None


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _storage(tensor: Tensor) -> Tensor:
    """All elements of the storage of a tensor."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0)
