"""The kinds of inputs: dense tensors of values, keys and `rows`, `ragged` batches, `numbers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, iterates

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TAKEN = "int64, int32, int16, int8 or uint8"


class BadInput(EdgewiseError):
    """An input is a float tensor, an integer tensor of keys, `rows(...)`, `ragged(...)`, facts."""

    code = "bad-input"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a="x")'
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3))"


@dataclass(frozen=True, eq=False)
class rows:
    """A relation as explicit rows: keys (arity, rows) of integers, and a value for each.

    >>> rows(torch.tensor([[0, 1], [1, 2]]), torch.ones(2)).keys.shape
    torch.Size([2, 2])
    """

    keys: Tensor
    values: Tensor | None = None

    def __post_init__(self) -> None:
        keys = _tensor(self.keys, "keys")
        if keys.dtype not in INTEGERS or keys.ndim not in (1, 2):
            raise BadInput(
                f"keys are a tensor (arity, rows) of {TAKEN}, got {keys.dtype} {tuple(keys.shape)}",
                caller(),
                "write `rows(keys, values)` with one row of keys for each term"
                if keys.dtype != torch.bool
                else "list the pairs of a mask: `mask.nonzero().T`",
            )
        keys = (keys if keys.ndim == 2 else keys.unsqueeze(0)).long().resolve_neg()
        object.__setattr__(self, "keys", keys)
        if self.values is not None:
            values = _tensor(self.values, "values")
            object.__setattr__(self, "values", values)
            if not 1 <= values.ndim <= 3 or values.shape[0] != self.keys.shape[1]:
                raise BadInput(
                    f"{self.keys.shape[1]} keys, but values of shape {tuple(values.shape)}",
                    caller(),
                    "give one value for each key: `values` is (rows, value...)",
                )
            if values.is_complex():
                raise BadInput("values are complex numbers", caller(), "give real ones")


@dataclass(frozen=True, eq=False)
class ragged:
    """A batch of samples of different sizes: one input for each sample.

    Its samples become rows with the number of the sample as first key, without padding; fused
    attention pads them to the longest (`physical/extents.py`).
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


Input = Tensor | rows | ragged
InputLike = Tensor | rows | ragged | numbers  # what a caller may pass


def _tensor(item: Any, what: str) -> Tensor:
    try:
        found = item if isinstance(item, Tensor) else tensor_copy(item)
        refuse_layout(found, f"the {what}")
        return found
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(
            f"the {what} are not numbers",
            caller(),
            "give a tensor, an array or lists of numbers; strings go into facts",
        ) from None


def tensor_copy(item: Any) -> Tensor:
    """The numbers of an array or of lists, of any strides; later writes into it are not seen."""
    return torch.as_tensor(np.array(item) if hasattr(item, "__array__") else item).clone()


def refuse_layout(tensor: Tensor, what: str) -> None:
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
        case rows(keys=keys, values=values):
            yield keys
            if values is not None:
                yield values
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
        case rows(keys=keys, values=values):
            return rows(keys.clone(), values)
        case ragged(samples=samples):
            return ragged([with_own_keys(sample) for sample in samples])
    return item
