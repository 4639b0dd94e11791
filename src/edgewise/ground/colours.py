"""Colours: integers that are equal only where values are sure to be equal.

Equality is found by hashing and then checked: what does not hold up gets a colour of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.ground.index import pack
from edgewise.layouts.segments import Segments

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of each row, numbered by their first rows, and those."""

    of: Tensor
    first: Tensor

    @property
    def count(self) -> int:
        return len(self.first)

    @property
    def rows(self) -> int:
        return len(self.of)


def classes(colours: Tensor) -> Classes:
    """Rows of one colour as a class.

    >>> classes(torch.tensor([7, 3, 7, 9])).of.tolist()
    [0, 1, 0, 2]
    """
    ordered, order = colours.sort(stable=True)
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    first, by_first = order[fresh].sort()
    number = torch.empty_like(by_first)
    number[by_first] = torch.arange(len(by_first))
    of = torch.empty_like(order)
    of[order] = number[fresh.cumsum(0) - 1]
    return Classes(of, first)


def mixed(columns: Sequence[Tensor], rows: int) -> Tensor:
    """One colour for each row of several columns of colours.

    >>> mixed([torch.tensor([0, 0, 1]), torch.tensor([5, 5, 5])], 3).tolist()
    [0, 0, 1]
    """
    if not columns:
        return torch.zeros(rows, dtype=torch.int64)
    found = columns[0]
    for column in columns[1:]:  # two at a time: their product stays small
        found = classes(pack([found, column])[0]).of
    return found


def of_values(values: Tensor) -> Tensor:
    """Colours of rows of numbers (rows, ...): equal where every bit is.

    >>> of_values(torch.tensor([[0.5, 1.0], [0.5, 2.0], [0.5, 1.0]])).tolist()
    [0, 1, 0]
    """
    rows = values.detach().cpu().reshape(len(values), math.prod(values.shape[1:]))
    bits = rows.contiguous().view(BITS[rows.element_size()])
    if bits.shape[1] == 1:
        return bits[:, 0].long()
    places = torch.arange(bits.shape[1])
    found = classes(_hash(bits.long() + _hash(places)).sum(1))
    return _checked(found, (bits == bits[found.first[found.of]]).all(1)).of


def of_segments(colours: Tensor, parts: Segments, *, in_order: bool) -> Classes:
    """Segments that hold the same colours equally often, or in the same order, as classes.

    >>> from edgewise.layouts.segments import segments
    >>> parts = segments(torch.tensor([0, 0, 1, 2, 2]), 3)
    >>> of_segments(torch.tensor([4, 5, 4, 5, 4]), parts, in_order=False).of.tolist()
    [0, 1, 0]
    """
    if parts.trivial:
        return classes(colours)
    (codes,) = pack([parts.ids] if in_order else [parts.ids, colours])
    order = codes.argsort(stable=True)
    colours, ids, sizes = colours[order], parts.ids[order], parts.sizes
    starts = sizes.cumsum(0) - sizes
    places = torch.arange(len(ids)) - starts[ids]
    hashes = _hash(colours + _hash(places)) if in_order else _hash(colours)
    sums = _hash(sizes).index_add(0, ids, hashes)
    found = classes(sums)
    twin = found.first[found.of]
    same = sizes == sizes[twin]
    there = (starts[twin][ids] + places).clamp(max=max(len(ids) - 1, 0))
    same[ids[colours != colours[there]]] = False
    return _checked(found, same)


def _checked(found: Classes, same: Tensor) -> Classes:
    """Rows that are not the same as the first of their class get classes of their own."""
    if bool(same.all()):
        return found
    wrong = (~same).nonzero()[:, 0]
    return classes(found.of.index_copy(0, wrong, found.count + torch.arange(len(wrong))))


def _hash(numbers: Tensor) -> Tensor:
    """Integers scattered over 64 bits (the finaliser of splitmix)."""
    found = numbers + -7046029254386353131
    found = (found ^ ((found >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    found = (found ^ ((found >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return found ^ ((found >> 31) & 0x1FFFFFFFF)
