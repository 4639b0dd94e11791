"""An immutable, hashable integer array that can be a field of a pattern."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import LARGEST, short_repr
from edgewise.graphs.errors import BadEdges, BadSize

SHOWN = 1000
EXAMPLES = {1: "one list, such as `[0, 1, 2]`", 2: "lists of equal length, such as `[[0, 1]]`"}
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class IntArray:
    """An immutable integer array; equal if all elements are.

    >>> IntArray([3, 4])
    [3, 4]
    """

    __slots__ = ("_hash", "array")
    array: np.ndarray
    _hash: int

    def __init__(self, values: Any, name: str = "integers", axes: int | None = None) -> None:
        array = values.array if isinstance(values, IntArray) else _array(values, name)
        if array.size and not np.issubdtype(array.dtype, np.integer):
            large = array.dtype == object and all(isinstance(x, int) for x in array.flat)
            kind = "numbers that are too large" if large else array.dtype
            kind = short_repr(values) if array.dtype == object and not large else kind
            raise BadSize(f"`{name}` must be integers, got {kind}", caller(), "give integers")
        if array.size and array.max() > LARGEST:
            raise BadSize(
                f"`{name}` must be at most {LARGEST:,}, got {int(array.max())}",
                caller(),
                "no graph has more tokens: give less",
            )
        if axes is not None and array.ndim != axes:
            raise BadEdges(
                f"`{name}` must have {axes} {'axis' if axes == 1 else 'axes'}, "
                f"got shape {array.shape}",
                caller(),
                f"give {EXAMPLES[axes]}",
            )
        array = np.array(array, dtype=np.int64, order="C")
        array.setflags(write=False)
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "_hash", hash((array.shape, array.tobytes())))

    def __reduce__(self) -> tuple[type["IntArray"], tuple[np.ndarray]]:
        return IntArray, (self.array,)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("IntArray is immutable")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntArray) or self._hash != other._hash:
            return False
        same = self.array is other.array or np.array_equal(self.array, other.array)
        if same:  # share one array, so that the next lookup in a cache compares by identity
            object.__setattr__(self, "array", other.array)
        return same

    def __hash__(self) -> int:
        return self._hash

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        """A list; beyond 1,000 elements abridged with `...`, which does not parse."""
        if self.array.size <= SHOWN:
            return repr(self.array.tolist())
        head, tail = repr(self.array[:4].tolist())[:-1], repr(self.array[-2:].tolist())[1:]
        return f"{head}, ..., {tail}"


Integers = Sequence[int] | Sequence[Sequence[int]] | np.ndarray | Tensor | IntArray


def has_data(x: Tensor) -> bool:
    """True if a tensor is strided and not on the meta device."""
    return x.layout is torch.strided and not x.is_meta


def refuse_in_trace() -> None:
    """Called while Dynamo traces, where it runs as plain Python."""
    raise BadEdges(
        "a graph is made of a tensor in a trace, where its numbers are not known",
        caller(),
        "make it before the compiled function is called, or in there of a list of integers",
    )


refuse_in_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _array(values: Any, name: str) -> np.ndarray:
    if torch.compiler.is_dynamo_compiling():
        refuse_in_trace()
    if np.ma.is_masked(values):
        what, fix = f"some entries of `{name}` are masked", "leave out the masked entries"
        raise BadEdges(what, caller(), fix)
    if isinstance(values, Tensor) and has_data(values) and values.dtype in INTEGERS:
        return np.asarray(values.numpy(force=True))
    try:
        if isinstance(values, Tensor | str | bytes):
            raise TypeError
        return np.asarray(list(values) if not isinstance(values, np.ndarray) else values)
    except (TypeError, ValueError, RuntimeError):
        raise BadEdges(
            f"`{name}` must be integers, got {short_repr(values)}",
            caller(),
            "give a list or a dense tensor of integers, lists of equal length in a list of lists",
        ) from None
