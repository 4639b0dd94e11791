"""Symbols: tensors of which shape and precision are known and numbers are not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Node

from edgewise.layouts.recorded import INTEGERS as SIZES

if TYPE_CHECKING:
    from edgewise.physical.lowering import Lowering


class Symbol(Tensor):
    """A value of the graph: the node that computes it, a meta tensor `like` it, and the `base` that
    it is a reshape of (itself, if of none)."""

    computed: Node | None
    like: Tensor
    base: Symbol
    lowering: Lowering

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _first(args, kwargs).lowering.call(func, args, kwargs or {})

    # read without a torch function: code asks for these at every step

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        return self.like.shape

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self.like.ndim

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return self.like.dtype

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.lowering.device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return self.lowering.device.type == "cuda"

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        """It may: what is lowered serves calls with and without gradients."""
        return self.like.is_floating_point()

    @property
    def mT(self) -> Tensor:  # type: ignore[override]
        return self.transpose(-2, -1)

    # calls that torch would hand back to `__torch_function__`

    def __mul__(self, other: Any) -> Tensor:
        found: Tensor = self.lowering.call(Tensor.mul, (self, other), {})
        return found

    def __add__(self, other: Any) -> Tensor:
        found: Tensor = self.lowering.call(Tensor.add, (self, other), {})
        return found

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        found: Tensor = self.lowering.call(Tensor.index_select, (self, dim, index), {})
        return found

    # views of all elements in their order: no torch function either, as rules take many

    def reshape(self, *shape: Any) -> Tensor:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        known = all(type(size) in SIZES and size >= 0 for size in sizes)
        if known and math.prod(sizes) == self.like.numel():
            return self.lowering.reshaped(self, tuple(sizes))
        found: Tensor = self.lowering.call(Tensor.reshape, (self, *shape), {})
        return found

    def __getitem__(self, item: Any) -> Tensor:
        first, shape = item if type(item) is tuple else (item,), self.like.shape
        alone = len(first) <= len(shape) and math.prod(shape[: len(first)]) == 1
        if alone and all(type(at) is int and at == 0 for at in first):
            return self.lowering.reshaped(self, shape[len(first) :])
        found: Tensor = self.lowering.call(Tensor.__getitem__, (self, item), {})
        return found

    def unsqueeze(self, dim: int) -> Tensor:
        shape = list(self.like.shape)
        shape.insert(dim if dim >= 0 else dim + len(shape) + 1, 1)
        return self.lowering.reshaped(self, tuple(shape))

    def squeeze(self, dim: int) -> Tensor:  # type: ignore[override]
        shape = list(self.like.shape)
        if shape[dim] == 1:
            shape.pop(dim)
        return self.lowering.reshaped(self, tuple(shape))

    def expand(self, *sizes: Any) -> Tensor:  # type: ignore[override]
        if tuple(sizes) == tuple(self.like.shape):
            return self
        found: Tensor = self.lowering.call(Tensor.expand, (self, *sizes), {})
        return found

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        shape = tuple(self.like.shape)
        end = end_dim if end_dim >= 0 else end_dim + len(shape)
        if not 0 <= start_dim <= end < len(shape):
            found: Tensor = self.lowering.call(Tensor.flatten, (self, start_dim, end_dim), {})
            return found
        middle = math.prod(shape[start_dim : end + 1])
        return self.lowering.reshaped(self, (*shape[:start_dim], middle, *shape[end + 1 :]))

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == 1 and not kwargs and args[0] is self.like.dtype:
            return self
        found: Tensor = self.lowering.call(Tensor.to, (self, *args), kwargs)
        return found

    def __len__(self) -> int:
        return self.like.shape[0]

    def numel(self) -> int:
        return self.like.numel()

    def dim(self) -> int:
        return self.like.ndim

    def is_floating_point(self) -> bool:
        return self.like.is_floating_point()


def _first(args: Any, kwargs: Any) -> Symbol:
    """A symbol among the arguments of a call."""
    if args and type(args[0]) is Symbol:
        return args[0]
    for item in (*args, *(kwargs or {}).values()):
        if type(item) is Symbol:
            return item
        if isinstance(item, list | tuple):
            found = next((part for part in item if type(part) is Symbol), None)
            if found is not None:
                return found
    raise NotImplementedError("a torch function reads symbols in a structure of its own")
