"""Dense inputs: a float tensor whose axes are the batch, the keys and the value."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from edgewise.checks.arity import ArityMismatch
from edgewise.checks.mismatch import ShapeMismatch
from edgewise.checks.wording import terms
from edgewise.errors import caller
from edgewise.ground.index import Grid
from edgewise.ground.sources.source import Source, value_shape


def dense_source(name: str, tensor: Tensor, arity: int, inner: set[int]) -> Source:
    """A float tensor [batch,] keys..., value...; `inner` are the value lengths weights expect."""
    sizes = tuple(tensor.shape)
    extra = len(sizes) - arity
    if extra < 0 or extra > 3:
        raise ArityMismatch(
            f"`{name}` has {terms(arity)}, but the tensor has {len(sizes)} axes {sizes}",
            caller(),
            f"give (keys..., value...) or (batch, keys..., value...): {arity} to {arity + 3} axes",
        )
    rank, batched = _layout(name, sizes, extra, inner)
    first = 1 if batched else 0
    grid = Grid(sizes[first : first + arity])
    batch = sizes[0] if batched else 1
    shape = value_shape(sizes[len(sizes) - rank :])
    return Source(grid, shape=shape, batch=batch, batched=batched, dense=True)


def _layout(name: str, sizes: tuple[int, ...], extra: int, inner: set[int]) -> tuple[int, bool]:
    """The rank of a value, and whether there is a batch axis."""
    if extra == 0:
        return 0, False
    if inner and sizes[-1] not in inner:
        wanted = " or ".join(map(str, sorted(inner)))
        raise ShapeMismatch(
            f"`{name}` has values of length {sizes[-1]}, but its weights take {wanted}",
            caller(),
            "the last axis is the value: (keys..., value) or (batch, keys..., value)",
        )
    return {1: (1, False), 2: (1, True), 3: (2, True)}[extra]


def in_samples(source: Source) -> Source:
    """A dense batch with the sample as its first key."""
    assert isinstance(source.index, Grid)
    grid = Grid((source.batch, *source.index.sizes))
    return replace(source, index=grid, batch=1, batched=False)
