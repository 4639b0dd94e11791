"""A data relation: which keys it holds, and where its values come from at every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.values import canonical
from edgewise.ground.index import Index, Keys


class Live:
    """Tensors of the caller, who may train them or write into them.

    `column` computes the stored values of a source from their current contents.
    """

    def __init__(self, leaves: Sequence[Tensor], column: Callable[[], Tensor]) -> None:
        self.leaves = tuple(leaves)
        self.column = column

    @property
    def trained(self) -> bool:
        return any(leaf.requires_grad for leaf in self.leaves)

    @property
    def mark(self) -> tuple[tuple[bool, int], ...]:
        """Changes when a tensor starts to require gradients, or is written into."""
        return tuple(
            # inference tensors never need gradients, nor do they count writes
            (False, 0) if leaf.is_inference() else (leaf.requires_grad, leaf._version)
            for leaf in self.leaves
        )


@dataclass(frozen=True, eq=False)
class Source:
    """A data relation: its index, and how to find its column (batch, rows, value...).

    `order` puts values row by row into key order, or repeats them in every sample; `live` are
    the caller's tensors that they come from.
    """

    index: Index
    order: Tensor | None = None
    stored: Tensor | None = None
    shape: tuple[int, ...] = ()  # of one value
    batch: int = 1
    batched: bool = False
    dense: bool = False
    weights: tuple[tuple[int, str], ...] = ()  # rows that are facts of the program
    lengths: Tensor | None = None  # (arity, samples) of a ragged batch of dense samples
    live: Live | None = None

    def data(
        self, values: Tensor | None, weights: Mapping[str, Tensor], dtype: torch.dtype
    ) -> Tensor:
        if values is not None and self.dense:
            lead = values if self.batched else values.unsqueeze(0)
            if self.order is None:
                return lead.reshape(self.batch, self.index.rows, *self.shape)
            once = math.prod(self.index.spans[1:])  # the same rows in every sample
            return lead.reshape(self.batch, once, *self.shape).index_select(1, self.order)
        assert self.stored is not None
        data = self.stored if values is None else values.to(self.stored.device)
        if self.order is not None:
            data = data.index_select(0, self.order)
        if self.weights:
            parts = list(data.unbind(0))
            for row, name in self.weights:
                parts[row] = canonical(weights[name].to(dtype))
            data = together(parts, self.weights[0][1])
        return data.to(dtype if data.is_floating_point() else data.dtype).unsqueeze(0)


def together(parts: Sequence[Tensor], name: str) -> Tensor:
    """The values of all rows as one tensor."""
    refuse_mixed(name, (tuple(part.shape) for part in parts))
    return torch.stack(list(parts))


def refuse_mixed(name: str, shapes: Iterable[tuple[int, ...]]) -> None:
    """Refuse facts of one relation with values of different shapes."""
    found = {value_shape(shape) for shape in shapes}
    if len(found) > 1:
        raise ShapeMismatch(
            f"the facts of `{name}` have values of different shapes: {sorted(found)}",
            caller(),
            "give them one shape, or relations of their own: a compiled relation has one",
        )


def value_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a value: 1×1 is a scalar, n×1 a column."""
    if math.prod(shape) == 1:
        return ()
    return shape[:1] if len(shape) == 2 and shape[1] == 1 else shape


def has_negative_keys(sources: Mapping[str, Source]) -> bool:
    found = (s.index.ends for s in sources.values() if isinstance(s.index, Keys))
    return any(low < 0 for ends in found for low, _ in ends)
