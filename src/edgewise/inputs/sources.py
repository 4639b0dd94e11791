"""A source for each input: which keys the relation holds, and where its values come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from edgewise.checks.atoms import ArityMismatch, DuplicateFact
from edgewise.checks.wording import terms
from edgewise.errors import caller
from edgewise.functions import columns
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.values import canonical
from edgewise.ground.index import STRINGS, Grid, Index, KeyOutOfRange, Keys, index_of
from edgewise.ground.source import Live, Source, together, value_shape
from edgewise.inputs.kinds import ragged, rows


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
    length = sizes[-2 if extra == 3 else -1]  # of a matrix, its rows
    if inner and length not in inner:
        wanted = " or ".join(map(str, sorted(inner)))
        scalars = f"; of scalars it is 1: `{name}.unsqueeze(-1)`" if inner == {1} else ""
        raise ShapeMismatch(
            f"`{name}` has values of length {length}, but its weights take {wanted}",
            caller(),
            f"the last axis is the value: (keys..., value) or (batch, keys..., value){scalars}",
        )
    return {1: (1, False), 2: (1, True), 3: (2, True)}[extra]


def in_samples(source: Source) -> Source:
    """A dense batch with the sample as its first key."""
    assert isinstance(source.index, Grid)
    grid = Grid((source.batch, *source.index.sizes))
    return replace(source, index=grid, batch=1, batched=False)


def in_every_sample(source: Source, samples: int) -> Source:
    """An unbatched source with the sample as its first key: it holds in each of them."""
    index, rows = source.index, source.index.rows
    order = torch.arange(rows) if source.order is None else source.order
    if isinstance(index, Grid):
        found: Index = Grid((samples, *index.sizes))
    else:
        first = torch.arange(samples).repeat_interleave(rows).unsqueeze(1)
        found = index_of(torch.cat([first, index.keys.repeat(samples, 1)], 1))
    return replace(source, index=found, order=order.repeat(samples))


def rows_source(name: str, item: rows, arity: int) -> Source:
    """Explicit keys, checked for repetition, with their values if they have any."""
    check_arity(name, item, arity)
    source = keyed(name, item.keys.T.cpu(), item.values, item.strings)
    values = item.values
    if values is None:
        return source
    return replace(source, live=Live([values], lambda: columns.canonical(values, 1)))


def check_arity(name: str, item: rows, arity: int) -> None:
    refuse_arity(name, tuple(item.keys.shape), arity)


def refuse_arity(name: str, shape: tuple[int, ...], arity: int) -> None:
    """Refuse keys, of this shape, of another number of terms than a relation has."""
    if shape[0] != arity:
        help = f"give an integer tensor of shape ({arity}, rows)"
        if shape[1:] == (arity,):
            help += ": one row of keys for each term, so these transposed, `keys.T`"
        elif shape[1:] == shape[:1]:
            help += "; of a matrix of zeros and ones, `matrix.nonzero().T`"
        raise ArityMismatch(
            f"`{name}` has {terms(arity)}, but the keys are {shape}",
            caller(),
            help,
        )


def _check_range(name: str, index: Keys, strings: Sequence[str]) -> None:
    for column, (low, high) in enumerate(index.ends):
        if low < 0 or high >= STRINGS + len(strings):
            keys = index.column(column)
            raise KeyOutOfRange(
                f"`{name}` has the key {int(keys[(keys < 0) | (keys >= STRINGS)][0])}",
                caller(),
                "give keys from 0, below 2^40; drop padding first: `keys[:, (keys >= 0).all(0)]`",
            )


def keyed(name: str, keys: Tensor, values: Tensor | None, strings: Sequence[str] = ()) -> Source:
    """Keys (rows, arity) in any order, with values (rows, value...) or none."""
    index = Keys(keys)
    if not index.arity and index.rows > 1:
        raise DuplicateFact(
            f"`{name}` has no terms, but {index.rows} values",
            caller(),
            "give one; combine the values before",
        )
    if not name.startswith("@"):  # those of ours hold keys of facts, also strings
        _check_range(name, index, strings)
    ordered, order = index.packed if index.ends else (keys, None)
    if order is not None:
        repeated = (ordered[1:] == ordered[:-1]).nonzero()
        if len(repeated):
            key = keys[order[repeated[0, 0]]].tolist()
            shown = tuple(strings[term - STRINGS] if term >= STRINGS else term for term in key)
            raise DuplicateFact(
                f"`{name}` has the key {shown} twice",
                caller(),
                "give each key once, or combine them: `rows(keys, duplicates='count')`, "
                "`rows(keys, values, duplicates='sum')`",
            )
        index = index.take(order)
    stored = torch.ones(keys.shape[0]) if values is None else columns.canonical(values, 1)
    return Source(index.or_grid(), order, stored, shape=tuple(stored.shape[1:]))


def ragged_source(name: str, batch: ragged, arity: int) -> Source:
    """Samples of different sizes as rows with the sample's number as first key."""
    lengths = _dense_lengths(name, batch, arity)
    if lengths is not None:
        keys, counts = _grid_keys(lengths)
    else:
        tables = [_sample_keys(name, item, arity) for item in batch.samples]
        counts = [table.shape[1] for table in tables]
        lists = torch.tensor(counts, dtype=torch.int64)
        numbers = torch.arange(len(tables)).repeat_interleave(lists)
        numbers = numbers.unsqueeze(0)
        found = torch.cat(tables, 1) if tables else torch.zeros(arity, 0, dtype=torch.int64)
        keys = torch.cat([numbers, found]).T.contiguous()

    def joined() -> Tensor | None:
        return _joined(name, [_sample_values(item, arity) for item in batch.samples], counts)

    strings = next((i.strings for i in batch.samples if isinstance(i, rows) and i.strings), ())
    source = keyed(name, keys, joined(), strings)
    return replace(source, lengths=lengths, live=ragged_live(name, batch, arity))


def ragged_live(name: str, batch: ragged, arity: int) -> Live | None:
    """The tensors of values of all samples, and how they are one column."""
    held = [item.values if isinstance(item, rows) else item for item in batch.samples]
    leaves = [item for item in held if item is not None and item.is_floating_point()]

    def column() -> Tensor:
        counts = [_sample_count(item, arity) for item in batch.samples]
        found = _joined(name, [_sample_values(item, arity) for item in batch.samples], counts)
        assert found is not None
        return columns.canonical(found, 1)

    return Live(leaves, column) if leaves else None


def _dense_lengths(name: str, batch: ragged, arity: int) -> Tensor | None:
    """The lengths (arity, samples) where every sample is a dense tensor of values."""
    for item in batch.samples:
        if not isinstance(item, Tensor) or not item.is_floating_point():
            return None
        _check_axes(name, item, arity)
    sizes = [item.shape[:arity] for item in batch.samples]
    found = torch.tensor(sizes, dtype=torch.int64).reshape(len(sizes), arity)
    return found.T.contiguous() if sizes else None


def _grid_keys(lengths: Tensor) -> tuple[Tensor, list[int]]:
    """All keys (sample, ...) below the lengths of each sample, and how many each has.

    >>> _grid_keys(torch.tensor([[2, 1]]))
    (tensor([[0, 0],
            [0, 1],
            [1, 0]]), [2, 1])
    """
    counts = lengths.prod(0)
    number = torch.arange(len(counts)).repeat_interleave(counts)
    place = torch.arange(len(number)) - (counts.cumsum(0) - counts)[number]
    columns: list[Tensor] = []
    for sizes in reversed(lengths.unbind(0)):
        own = sizes[number]
        columns.insert(0, place % own if len(lengths) > 1 else place)
        place = place // own if len(lengths) > 1 else place
    return torch.stack([number, *columns], 1), counts.tolist()


def _sample_values(item: rows | Tensor, arity: int) -> Tensor | None:
    if isinstance(item, rows):
        return item.values
    if not item.is_floating_point():
        return None
    return item.reshape(math.prod(item.shape[:arity]), *item.shape[arity:])


def _sample_count(item: rows | Tensor, arity: int) -> int:
    if isinstance(item, Tensor) and item.is_floating_point():
        return math.prod(item.shape[:arity])
    return (item.keys if isinstance(item, rows) else rows(item).keys).shape[1]


def _joined(name: str, values: Sequence[Tensor | None], counts: Sequence[int]) -> Tensor | None:
    """The values of all samples; a fact without a value has value 1."""
    if all(value is None for value in values):
        return None
    like = next(value for value in values if value is not None)
    full = [like.new_ones(n) if v is None else v for v, n in zip(values, counts, strict=True)]
    shapes = {tuple(value.shape[1:]) for value in full}
    if len(shapes) > 1:
        raise ShapeMismatch(
            f"the samples of `{name}` have values of different shapes: {sorted(shapes)}",
            caller(),
            "only the number of keys may differ between samples",
        )
    return torch.cat(full)


def _sample_keys(name: str, item: rows | Tensor, arity: int) -> Tensor:
    """The keys (arity, rows) of one sample."""
    if isinstance(item, Tensor) and item.is_floating_point():
        _check_axes(name, item, arity)
        return Grid(tuple(item.shape[:arity])).keys.T
    sample = item if isinstance(item, rows) else rows(item)
    check_arity(name, sample, arity)
    return sample.keys.cpu()


def _check_axes(name: str, item: Tensor, arity: int) -> None:
    if not arity <= item.ndim <= arity + 2:
        raise ArityMismatch(
            f"`{name}` has {terms(arity)}, but a sample has {item.ndim} axes {tuple(item.shape)}",
            caller(),
            "a dense sample is (keys..., value...)",
        )


def fact_source(
    name: str,
    keys: Tensor,
    values: Callable[[], Tensor | Sequence[Tensor]],
    leaves: Sequence[Tensor],
    weights: tuple[tuple[int, str], ...] = (),
) -> Source:
    """Facts in key order; `leaves` are tensors among their values, `weights` the learnt rows."""

    def column() -> Tensor:
        found = values()
        if isinstance(found, Tensor):
            return columns.canonical(found, 1)
        alike = len(found) > 1 and all(value is found[0] for value in found)
        stacked = together([canonical(v) for v in (found[:1] if alike else found)], name)
        return stacked.repeat(len(found), *(1,) * (stacked.ndim - 1)) if alike else stacked

    stored, live = column(), Live(leaves, column) if leaves else None
    shape = tuple(stored.shape[1:])
    return Source(index_of(keys), stored=stored, shape=shape, weights=weights, live=live)
