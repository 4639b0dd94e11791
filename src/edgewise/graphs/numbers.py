"""A fixed table of integers that can be a field of a pattern: immutable, hashable, printable."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.errors import BadEdges, BadSize

SHOWN = 1000


class Numbers:
    """Integers in an array that does not change; equal if all are.

    >>> Numbers([3, 4])
    [3, 4]
    """

    __slots__ = ("_hash", "array")
    array: np.ndarray
    _hash: int

    def __init__(self, values: Any, name: str = "numbers") -> None:
        if isinstance(values, Numbers):
            values = values.array
        array = (
            values.detach().cpu().numpy() if isinstance(values, Tensor) else _array(values, name)
        )
        if array.size and not np.issubdtype(array.dtype, np.integer):
            raise BadSize(
                f"`{name}` must be whole numbers, got {array.dtype}", caller(), "give integers"
            )
        array = np.array(array, dtype=np.int64, order="C")
        array.setflags(write=False)
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "_hash", hash((array.shape, array.tobytes())))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Numbers do not change")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return self._hash

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        """A list; a very long one with `...` in its middle, which is for reading only."""
        if self.array.size <= SHOWN:
            return repr(self.array.tolist())
        head, tail = repr(self.array[:4].tolist())[:-1], repr(self.array[-2:].tolist())[1:]
        return f"{head}, ..., {tail}"


Integers = Sequence[int] | Sequence[Sequence[int]] | np.ndarray | Tensor | Numbers


def _array(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(list(values) if not isinstance(values, np.ndarray) else values)
    except (TypeError, ValueError):
        raise BadEdges(
            f"`{name}` must be a table of whole numbers, got {values!r}",
            caller(),
            "give lists of equal length, such as `[(0, 1), (1, 2)]`",
        ) from None
