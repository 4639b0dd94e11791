"""Which rows each head reads, both ways, laid out once for every kernel and every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from edgewise.kernels.pieces import cut
from edgewise.layouts.ragged import Ints

MOST = 512  # entries of a piece: to add up two of them costs little beside reading them


@dataclass(frozen=True, eq=False)
class Half:
    """CSR in one direction: segment s reads rows[ptr[s]:ptr[s+1]].

    `turn` lists the entries as the other direction does. A hub would keep one processor busy
    while the others wait, so long segments are cut: piece p has the entries pieces[p] to
    pieces[p+1] of segment owner[p]; slot[p] is -1, or the place of its partial result. Segment
    split[k] is the sum of slots split_ptr[k] to split_ptr[k+1]. Where no segment is cut the
    pieces are the segments, and the other four are empty.
    """

    ptr: Tensor
    rows: Tensor
    turn: Tensor
    pieces: Tensor
    owner: Tensor
    slot: Tensor
    split: Tensor
    split_ptr: Tensor

    @property
    def segments(self) -> int:
        return self.ptr.shape[0] - 1

    @property
    def entries(self) -> int:
        return self.rows.shape[0]

    @property
    def slots(self) -> int:
        """How many partial results there are."""
        return self.owner.shape[0] - self.segments + self.split.shape[0] if self.cut else 0

    @property
    def cut(self) -> bool:
        return self.split.shape[0] > 0

    @property
    def parts(self) -> Half:
        """How the partial results of the segments that are cut add up."""
        numbers = torch.arange(self.slots, dtype=torch.int32, device=self.ptr.device)
        none = self.ptr[:0]
        return Half(self.split_ptr, numbers, numbers, self.split_ptr, none, none, none, none)

    def assembled(self, found: Tensor, merged: Tensor) -> Tensor:
        """From results of pieces, and of the segments that are cut, to those of all segments."""
        out = found.new_empty(self.segments, *found.shape[1:])
        whole = self.slot < 0
        out[self.owner[whole].long()] = found[whole]
        out[self.split.long()] = merged
        return out

    @property
    def ids(self) -> Tensor:
        """The segment of each entry."""
        numbers = torch.arange(self.segments, dtype=torch.int32, device=self.ptr.device)
        return torch.repeat_interleave(numbers, self.ptr.diff(), output_size=self.entries)


FIELDS = len(Half.__dataclass_fields__)


@dataclass(frozen=True, eq=False)
class Gather:
    """A sparse matrix of zeros and ones, segments × rows of a source, as CSR both ways."""

    forth: Half
    back: Half

    @property
    def rows(self) -> Tensor:
        return self.forth.rows

    @cached_property
    def turned(self) -> Gather:
        """The transposed matrix."""
        return Gather(self.back, self.forth)

    def copies(self, count: int) -> Gather:
        """As many of it one after another, each with segments and rows of its own.

        >>> found = gather(torch.tensor([2, 0, 2]), torch.tensor([0, 0, 1]), 2, 3).copies(2)
        >>> found.forth.ptr.tolist(), found.forth.rows.tolist()
        ([0, 2, 3, 5, 6], [2, 0, 2, 5, 3, 5])
        """
        if count not in self._copies:
            self._copies.clear()  # batches are mostly of one size
            with _disable_current_modes():  # in a trace they are constants, as these are
                forth = _copied(self.forth, count, self.back.segments)
                back = _copied(self.back, count, self.forth.segments)
            self._copies[count] = Gather(forth, back)
        return self._copies[count]

    @cached_property
    def _copies(self) -> dict[int, Gather]:
        return {}

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All of it, as operators take it."""
        return [t for half in (self.forth, self.back) for t in vars(half).values()]

    @cached_property
    def shares(self) -> tuple[Tensor, Tensor]:
        """One over the size of its segment, for each entry, listed forth and back."""
        sizes = self.forth.ptr.diff()
        share = (1 / sizes.clamp(min=1).double()).float().repeat_interleave(sizes)
        return share, share.index_select(0, self.forth.turn)


def _copied(half: Half, count: int, rows: int) -> Half:
    def moved(numbers: Tensor, by: int) -> Tensor:
        return (numbers + by * steps).flatten()

    def joined(ptr: Tensor, entries: int) -> Tensor:
        return torch.cat([moved(ptr[:-1], entries), ptr.new_full((1,), count * entries)])

    steps = torch.arange(count, dtype=torch.int32, device=half.ptr.device)[:, None]
    ptr = joined(half.ptr, half.entries)
    those = moved(half.rows, rows), moved(half.turn, half.entries)
    if not half.cut:
        return Half(ptr, *those, ptr, half.owner, half.slot, half.split, half.split_ptr)
    slot = torch.where(half.slot < 0, -1, half.slot + half.slots * steps).flatten()
    split = moved(half.split, half.segments), joined(half.split_ptr, half.slots)
    pieces = joined(half.pieces, half.entries)
    return Half(ptr, *those, pieces, moved(half.owner, half.segments), slot, *split)


def gather_of(tensors: Sequence[Tensor]) -> Gather:
    """Back from what an operator was given."""
    return Gather(Half(*tensors[:FIELDS]), Half(*tensors[FIELDS:]))


def gather(rows: Tensor, ids: Tensor, count: int, size: int) -> Gather:
    """Entry e belongs to segment `ids[e]`, ascending, and reads `rows[e]` of a source of `size`.

    >>> found = gather(torch.tensor([2, 0, 2]), torch.tensor([0, 0, 1]), 2, 3)
    >>> found.forth.ptr.tolist(), found.back.rows.tolist(), found.forth.turn.tolist()
    ([0, 2, 3], [0, 0, 1], [1, 0, 2])
    """
    turn = rows.argsort(stable=True)
    ptr, back_ptr = _pointer(ids, count), _pointer(rows, size)
    return Gather(
        _half(ptr, rows, turn),
        _half(back_ptr, ids.index_select(0, turn), turn.argsort()),
    )


def runs(ids: Tensor, count: int) -> Gather:
    """Entry e belongs to segment `ids[e]`, ascending, and is row e itself.

    >>> runs(torch.tensor([0, 0, 1]), 2).back.rows.tolist()
    [0, 0, 1]
    """
    numbers = torch.arange(len(ids))
    back = _half(torch.arange(len(ids) + 1), ids, numbers)
    return Gather(_half(_pointer(ids, count), numbers, numbers), back)


def _pointer(ids: Tensor, count: int) -> Tensor:
    ends = torch.bincount(ids, minlength=count).cumsum(0)
    return torch.nn.functional.pad(ends, (1, 0))


def _half(ptr: Tensor, rows: Tensor, turn: Tensor) -> Half:
    small = ptr.int()
    return Half(small, rows.int(), turn.int(), *_cut(ptr.numpy(), small))


def _cut(ptr: Ints, whole: Tensor) -> tuple[Tensor, ...]:
    """Pieces of at most MOST entries, about equal within a segment."""
    found, none = cut(ptr, MOST), whole[:0]
    if not len(found.split):
        return whole, none, none, none, none
    slot = np.where(found.place < found.rows, -1, found.place - found.rows)
    arrays = (found.ptr, found.owner, slot, found.split, found.split_ptr)
    return tuple(torch.from_numpy(x.astype(np.int32)) for x in arrays)
