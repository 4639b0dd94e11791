"""The kinds of inputs: dense tensors of values, keys and `rows`, `ragged` batches, `numbers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller, counted, iterates, nearest, safe_repr
from edgewise.ground.index import Constants
from edgewise.inputs.errors import BadInput
from edgewise.inputs.key_columns import (
    FRAMES,
    INTEGERS,
    TAKEN,
    column_array,
    combined,
    is_column,
    read_keys,
    recoded,
    refuse_unread,
)

DUPLICATES = ("refuse", "count", "sum", "once")
SHOWN = 4  # samples of a ragged batch


@dataclass(frozen=True, eq=False, init=False, repr=False)
class rows:
    """A relation as explicit rows: keys, and a value for each.

    Keys are a tensor (arity, rows) of integers, a list of tuples of integers and strings, or
    columns: a frame of pandas, polars or Arrow, or a list of arrays. `duplicates` says what a key
    that occurs again means: it is refused, or occurrences are counted, their values summed, or
    it holds once.

    >>> rows(torch.tensor([[0, 1], [1, 2]]), torch.ones(2)).keys.shape
    torch.Size([2, 2])
    >>> rows([("ann", "bob"), ("bob", "bob")], [0.5, 2.0]).strings
    ('ann', 'bob')
    >>> rows([(0, 1), (0, 1)], duplicates="count").values
    tensor([2.])
    """

    keys: Tensor
    values: Tensor | None
    strings: tuple[str, ...]  # among the keys, which are their numbers
    has_precision: bool  # of its values: not if they are lists or columns of frames
    are_combined: bool  # its values: repetitions are counted or summed

    def __init__(
        self,
        keys: Tensor | np.ndarray | Iterable[object],
        values: Tensor | np.ndarray | Iterable[object] | None = None,
        *,
        duplicates: Literal["refuse", "count", "sum", "once"] = "refuse",
    ) -> None:
        if isinstance(keys, Tensor):
            refuse_layout(keys, "the keys")
        indices: list[Any] = [getattr(part, "index", None) for part in (keys, values)]
        of_pandas = all(hasattr(index, "equals") for index in indices)
        if of_pandas and not indices[0].equals(indices[1]):
            raise BadInput(
                "keys and values have different indices, so their rows do not correspond",
                caller(),
                "take both from one frame: `rows(frame[['a', 'b']], frame['w'])`",
            )
        found, strings = read_keys(keys)
        held = None if values is None else _values(values, found)
        if duplicates != "refuse":
            _check_duplicates(duplicates, held)
            found, held = combined(found, held, duplicates)
        object.__setattr__(self, "keys", found)
        object.__setattr__(self, "values", held)
        object.__setattr__(self, "strings", strings)
        object.__setattr__(self, "has_precision", values is None or has_precision(values))
        object.__setattr__(self, "are_combined", duplicates in ("count", "sum"))

    def __repr__(self) -> str:
        named = f", {counted(len(self.strings), 'string')}" if self.strings else ""
        values = "" if self.values is None else f", values {_shape(self.values)}"
        return f"<rows: {self.keys.shape[1]:,} keys of {self.keys.shape[0]} terms{named}{values}>"

    @classmethod
    def of(cls, keys: Tensor, values: Tensor | None, strings: tuple[str, ...]) -> rows:
        """Keys some of which are strings, by their numbers."""
        found = rows(keys, values)
        object.__setattr__(found, "strings", strings)
        return found

    def of_any_precision(self) -> rows:
        """The same, with values that take the precision of the model."""
        object.__setattr__(self, "has_precision", False)
        return self

    def in_precision(self, dtype: torch.dtype) -> rows:
        """The same with values of a precision, unless the caller chose theirs."""
        values = self.values
        if self.has_precision or values is None or not values.is_floating_point():
            return self
        return rows.of(self.keys, values.to(dtype), self.strings)

    def with_own_keys(self) -> rows:
        """The same with keys that later edits of the caller do not reach."""
        keys = self.keys
        if keys.device.type != "cpu":
            return rows.of(keys.clone(), self.values, self.strings)
        # numpy asks for huge pages: a third of the time of a clone
        own = torch.from_numpy(keys.numpy().copy(order="K"))
        return rows.of(own, self.values, self.strings)

    def renumbered(self, constants: Constants) -> rows:
        """The same keys by the numbers that their strings have among these constants."""
        if not self.strings:
            return self
        keys = recoded(self.keys, self.strings, constants.ranks)
        return rows.of(keys, self.values, tuple(constants.strings))

    def tensors(self) -> list[Tensor]:
        """What is in memory."""
        return [self.keys] if self.values is None else [self.keys, self.values]


def _values(item: Any, keys: Tensor) -> Tensor:
    values = _tensor(item, "values")
    if not 1 <= values.ndim <= 3 or values.shape[0] != keys.shape[1]:
        turned = values.ndim and values.shape[0] == keys.shape[0]
        raise BadInput(
            f"{keys.shape[1]} keys, but values of shape {tuple(values.shape)}",
            caller(),
            "give one value for each key: `values` is (rows, value...)"
            + ("; keys are (arity, rows), or a list of tuples" if turned else ""),
        )
    if values.is_complex():
        raise BadInput("values are complex numbers", caller(), "give real ones")
    return values


def _check_duplicates(duplicates: str, values: Tensor | None) -> None:
    if duplicates not in DUPLICATES:
        near = nearest(duplicates, DUPLICATES) if isinstance(duplicates, str) else None
        raise BadInput(
            f"`duplicates` is {safe_repr(duplicates)}",
            caller(),
            f"did you mean {near!r}?"
            if near
            else f"give one of {', '.join(map(repr, DUPLICATES))}",
        )
    if (duplicates == "sum") == (values is None):
        raise BadInput(
            f"{duplicates!r} is for keys {'with' if values is None else 'without'} values",
            caller(),
            "count them: `duplicates='count'`"
            if values is None
            else "add them: `duplicates='sum'`",
        )


@dataclass(frozen=True, eq=False, repr=False)
class ragged:
    """A batch of samples of different sizes: one input for each sample.

    Its samples become rows with the number of the sample as first key, without padding; fused
    attention pads them to the longest (`physical/attention/extents.py`).

    >>> len(ragged([torch.ones(3, 2), torch.ones(5, 2)]).samples)
    2
    """

    samples: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.samples, str | bytes | dict) or not iterates(self.samples):
            raise BadInput(
                f"`ragged` takes a list of samples, got {type(self.samples).__name__}",
                caller(),
                "write `ragged([first, second])`",
            )
        object.__setattr__(self, "samples", tuple(self.samples))

    def __repr__(self) -> str:
        first = ", ".join(map(_shape, self.samples[:SHOWN]))
        more = ", …" if len(self.samples) > SHOWN else ""
        return f"<ragged: {counted(len(self.samples), 'sample')}: {first}{more}>"


@dataclass(frozen=True, eq=False)
class numbers:
    """Integers as values on dense axes, such as tokens: ([batch,] keys...).

    An integer tensor alone is keys. Numbers stay integers in every precision, for `F.lookup`.

    >>> numbers([[101, 7592, 102]]).values.shape
    torch.Size([1, 3])
    """

    values: Tensor

    def __post_init__(self) -> None:
        values = _tensor(self.values, "values")
        if values.dtype not in INTEGERS:
            raise BadInput(
                f"`numbers` takes {TAKEN}, got {values.dtype}",
                caller(),
                "give a float tensor as it is: `model(x=tensor)`"
                if values.is_floating_point()
                else "convert them: `numbers(tensor.long())`",
            )
        object.__setattr__(self, "values", values.long())

    def on(self, name: str, arity: int) -> Tensor:
        """The numbers as scalars: (keys..., 1) or (batch, keys..., 1)."""
        if self.values.ndim not in (arity, arity + 1):
            raise BadInput(
                f"`{name}` has {arity} keys, the numbers have {self.values.ndim} axes "
                f"{tuple(self.values.shape)}",
                caller(),
                "give one number for each key: (keys...) or (batch, keys...)",
            )
        return self.values.unsqueeze(-1)


def _shape(item: Any) -> str:
    return str(tuple(item.shape)) if hasattr(item, "shape") else safe_repr(item)


Input = Tensor | rows | ragged
InputLike = Tensor | rows | ragged | numbers | np.ndarray | Iterable[object]  # by a caller


def _tensor(item: Any, what: str) -> Tensor:
    try:
        found = item if isinstance(item, Tensor) else tensor_copy(item)
        refuse_layout(found, f"the {what}")
        return found
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(
            f"the {what} are not numbers",
            caller(),
            "give a tensor, an array, a column or lists of numbers",
        ) from None


def tensor_copy(item: Any) -> Tensor:
    """The numbers of an array or of lists, of any strides; later writes into it are not seen."""
    refuse_unread(item, "the numbers")
    if is_column(item):
        return torch.as_tensor(column_array(item).copy())
    if isinstance(item, list) and any(isinstance(one, np.ndarray) for one in item):
        item = np.array(item)
    if hasattr(item, "__array__"):
        array = np.array(item)
        return torch.as_tensor(array.astype(array.dtype.newbyteorder("="))).clone()
    found = torch.as_tensor(item)
    return torch.as_tensor(item, dtype=torch.float64) if found.is_floating_point() else found


def has_precision(item: Any) -> bool:
    """Whether somebody chose the precision of numbers: that of lists and frames is Python's."""
    package = type(item).__module__.partition(".")[0]
    return isinstance(item, Tensor) or (hasattr(item, "__array__") and package not in FRAMES)


def refuse_layout(tensor: Tensor, what: str) -> None:
    if type(tensor).__name__ == "DTensor":
        raise BadInput(
            f"{what}: a DTensor",
            caller(),
            "a model computes the samples of its process: give `x.to_local()`, sharded by samples; "
            "tokens are shared by `distributed.on_mesh(model, mesh)`",
        )
    if tensor.is_nested:
        raise BadInput(
            f"{what}: a nested tensor", caller(), "give its samples: `ragged(tensor.unbind())`"
        )
    if tensor.layout != torch.strided:
        raise BadInput(
            f"{what}: a tensor of layout {tensor.layout}",
            caller(),
            "write `x.to_dense()`, or `rows(x.coalesce().indices(), x.coalesce().values())`",
        )


def parts(item: Input) -> Iterator[Tensor]:
    """The tensors of an input: keys are integers, values are floats."""
    match item:
        case rows():
            yield from item.tensors()
        case ragged(samples=samples):
            for sample in samples:
                if isinstance(sample, rows | Tensor):
                    yield from parts(sample)
        case Tensor():
            yield item


def dense(inputs: Mapping[str, Input]) -> dict[str, Tensor]:
    """The inputs that are float tensors: their values may change with every step."""
    return {name: item for name, item in inputs.items() if isinstance(item, Tensor)}


def with_own_keys(item: Input) -> Input:
    """The input with keys of its own: they are joined once, later edits must not reach them."""
    match item:
        case rows():
            return item.with_own_keys()
        case ragged(samples=samples):
            return ragged([with_own_keys(sample) for sample in samples])
    return item
