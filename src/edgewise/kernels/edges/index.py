"""Edges as CSR both ways, with long segments split, and rows by the matrix that multiplies each.

Both are prepared once for every kernel and step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from edgewise.layouts.ragged import Ints, order_of, pointer, ranges
from edgewise.layouts.recorded import one_call

MOST = 512  # edges of a piece: to add up two of them costs little beside reading them
LONG, PIECES = 4, 1024  # or so many times the mean, if that still makes so many pieces
SMALL = 2**31  # numbers below it are int32
TILE = 64  # rows of one product on a GPU
MANY = 512  # rows of a member that are worth a product of their own
MOST_PADDED = 1.5  # times the rows, where members are multiplied together
CHUNK = 4096  # rows that are summed into one part of a weight's gradient


@dataclass(frozen=True, eq=False)
class SplitCSR:
    """CSR in one direction: segment s has the edges ptr[s] to ptr[s+1], edge e reads row index[e].

    Edge c of the other direction is edge perm[c] here. A hub would keep one thread busy while the
    others wait, so long segments are split: piece p has the edges pieces[p] to pieces[p+1] of
    segment owner[p]; slot[p] is -1, or the place of its partial result. Segment split[k] is
    reduced from slots split_ptr[k] to split_ptr[k+1]. Where no segment is split the pieces are
    the segments, and the other four are empty.
    """

    ptr: Tensor
    index: Tensor
    perm: Tensor
    pieces: Tensor
    owner: Tensor
    slot: Tensor
    split: Tensor
    split_ptr: Tensor

    @cached_property
    def segments(self) -> int:
        return self.ptr.shape[0] - 1

    @cached_property
    def edges(self) -> int:
        return self.index.shape[0]

    @cached_property
    def slots(self) -> int:
        """The number of partial results."""
        return self.owner.shape[0] - self.segments + self.split.shape[0] if self.is_split else 0

    @cached_property
    def results(self) -> int:
        """The rows that kernels write on a CPU: partial results stand behind the segments."""
        return self.segments + self.slots

    @cached_property
    def is_split(self) -> bool:
        return self.split.shape[0] > 0

    @cached_property
    def unsplit(self) -> tuple[Tensor, Tensor]:
        """The pieces that are segments, and which."""
        pieces = torch.nonzero(self.slot < 0).flatten()
        return pieces, self.owner.index_select(0, pieces).long()

    @cached_property
    def partial(self) -> tuple[Tensor, Tensor]:
        """The pieces of split segments, in the order of their slots, and the split segments."""
        pieces = torch.nonzero(self.slot >= 0).flatten()
        return pieces.to(self.split_ptr.dtype), self.split.long()

    @property
    def ids(self) -> Tensor:
        """The segment of each edge."""
        numbers = torch.arange(self.segments, dtype=torch.int32, device=self.ptr.device)
        return torch.repeat_interleave(numbers, self.ptr.diff(), output_size=self.edges)

    @property
    def parts(self) -> SplitCSR:
        """How the partial results of split segments add up."""
        return consecutive(self.split_ptr, self.slots)

    @cached_property
    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pieces, the row that each belongs to and that of its result."""
        if not self.is_split:
            numbers = torch.arange(self.segments, dtype=self.ptr.dtype)
            return self.pieces, numbers, numbers
        place = torch.where(self.slot < 0, self.owner, self.slot + self.segments)
        return self.pieces, self.owner, place.to(self.ptr.dtype)

    @cached_property
    def numbers(self) -> Tensor:
        """The edges as they are listed."""
        return torch.arange(self.edges, dtype=self.ptr.dtype)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As loops on a CPU take it: pieces, owner and row of the result of each, index."""
        owner, slot = self.owner.numpy(), self.slot.numpy()
        place = np.where(slot < 0, owner, slot + self.segments).astype(owner.dtype)
        return self.pieces.numpy(), owner, place, self.index.numpy()

    def summed(self, x: Tensor) -> Tensor:
        """From results (..., results, width) to (..., segments, width): partial ones added."""
        if not self.is_split:
            return x
        x[..., self.split.long(), :] = self._reduced(x[..., self.segments :, :])
        return x[..., : self.segments, :]

    def merged(self, lse: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """The log-sum-exp (..., results) and what it weighs (..., results, width), of segments."""
        if not self.is_split:
            return lse, out
        parts = lse[..., self.segments :]
        most = self._reduced(parts[..., None], "max")[..., 0]
        top = torch.where(most == -torch.inf, 0, most)
        sizes = self.split_ptr.diff().long()
        share = torch.exp(parts - top.repeat_interleave(sizes, -1))[..., None]
        total = self._reduced(share)
        found = self._reduced(out[..., self.segments :, :] * share)
        split = self.split.long()
        out[..., split, :] = found / torch.where(total == 0, 1, total)
        lse[..., split] = total.log()[..., 0] + top
        return lse[..., : self.segments], out[..., : self.segments, :]

    def _reduced(self, parts: Tensor, how: str = "sum") -> Tensor:
        """(..., slots, width) of partial results to (..., split segments, width), in order."""
        first = parts.movedim(-2, 0).contiguous()
        found = torch.segment_reduce(first, how, offsets=self.split_ptr, axis=0, unsafe=True)
        return found.movedim(0, -2)

    def repeated(self, count: int, rows: int) -> SplitCSR:
        """As many of it one after another, each with segments and `rows` of its own."""

        def moved(numbers: Tensor, by: int) -> Tensor:
            return (numbers + by * steps).flatten()

        def joined(ptr: Tensor, edges: int) -> Tensor:
            return torch.cat([moved(ptr[:-1], edges), steps.new_full((1,), count * edges)])

        kind = _integers(count * max(self.edges, self.segments, rows))
        steps = torch.arange(count, dtype=kind, device=self.ptr.device)[:, None]
        ptr = joined(self.ptr, self.edges)
        each = ptr, moved(self.index, rows), moved(self.perm, self.edges)
        if not self.is_split:
            return SplitCSR(*each, ptr, *[ptr[:0]] * 4)
        slot = torch.where(self.slot < 0, -1, self.slot + self.slots * steps).flatten()
        split = moved(self.split, self.segments), joined(self.split_ptr, self.slots)
        pieces = joined(self.pieces, self.edges)
        return SplitCSR(*each, pieces, moved(self.owner, self.segments), slot, *split)


FIELDS = len(SplitCSR.__dataclass_fields__)


@dataclass(frozen=True, eq=False)
class EdgeIndex:
    """Edges (i, j) from segments i, the rows of a sparse matrix, to rows j of a source.

    `rows` lists them by i and `columns` by j: forward passes run along rows, gradients of what is
    gathered along columns, both without atomics and with one order of sums.
    """

    rows: SplitCSR
    columns: SplitCSR

    @property
    def edges(self) -> int:
        return self.rows.edges

    @cached_property
    def transposed(self) -> EdgeIndex:
        return EdgeIndex(self.columns, self.rows)

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All of it, as operators take it."""
        fields = SplitCSR.__dataclass_fields__
        return [getattr(half, name) for half in (self.rows, self.columns) for name in fields]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> EdgeIndex:
        """Back from `tensors`."""
        return EdgeIndex(SplitCSR(*tensors[:FIELDS]), SplitCSR(*tensors[FIELDS:]))

    def repeated(self, count: int) -> EdgeIndex:
        """As many of it one after another, each with segments and rows of its own.

        >>> found = edge_index(torch.tensor([0, 0, 1]), torch.tensor([2, 0, 2]), 2, 3).repeated(2)
        >>> found.rows.ptr.tolist(), found.rows.index.tolist()
        ([0, 2, 3, 5, 6], [2, 0, 2, 5, 3, 5])
        """
        if count not in self._repeated:
            self._repeated.clear()  # batches are mostly of one size
            with _disable_current_modes():  # in a trace they are constants, as these are
                rows = self.rows.repeated(count, self.columns.segments)
                columns = self.columns.repeated(count, self.rows.segments)
            self._repeated[count] = EdgeIndex(rows, columns)
        return self._repeated[count]

    @cached_property
    def prepared(self) -> dict[Any, Any]:
        """What kernels prepare for these edges and the strides of their inputs."""
        return {}

    @cached_property
    def _repeated(self) -> dict[int, EdgeIndex]:
        return {}

    @cached_property
    def mean_scales(self) -> tuple[Tensor, Tensor]:
        """One over the size of its segment, for each edge, by rows and by columns."""
        sizes = self.rows.ptr.diff()
        scale = (1 / sizes.clamp(min=1).double()).float().repeat_interleave(sizes)
        return scale, scale.index_select(0, self.rows.perm)


@one_call
def edge_index(i: Tensor, j: Tensor, n: int, m: int) -> EdgeIndex:
    """Edge e belongs to segment i[e] of n, ascending, and reads row j[e] of a source of m.

    >>> found = edge_index(torch.tensor([0, 0, 1]), torch.tensor([2, 0, 2]), 2, 3)
    >>> found.rows.ptr.tolist(), found.columns.index.tolist(), found.rows.perm.tolist()
    ([0, 2, 3], [0, 0, 1], [1, 0, 2])
    """
    perm = torch.from_numpy(order_of(j.numpy(), m)) if j.is_cpu else j.argsort(stable=True)
    back = torch.empty_like(perm)
    back[perm] = torch.arange(len(perm), device=perm.device)
    rows = _split(_pointer_of(i, n), j, perm, m)
    return EdgeIndex(rows, _split(_pointer_of(j, m), i.index_select(0, perm), back, n))


@one_call
def segment_index(i: Tensor, n: int) -> EdgeIndex:
    """Edge e belongs to segment i[e], ascending, and is row e itself.

    >>> segment_index(torch.tensor([0, 0, 1]), 2).columns.index.tolist()
    [0, 0, 1]
    """
    numbers = torch.arange(len(i))
    columns = _split(torch.arange(len(i) + 1), i, numbers, n)
    return EdgeIndex(_split(_pointer_of(i, n), numbers, numbers, len(i)), columns)


def consecutive(ptr: Tensor, edges: int) -> SplitCSR:
    """Segments of consecutive rows, none of them split."""
    numbers = torch.arange(edges, dtype=ptr.dtype, device=ptr.device)
    return SplitCSR(ptr, numbers, numbers, ptr, *[ptr[:0]] * 4)


def _pointer_of(ids: Tensor, count: int) -> Tensor:
    ends = torch.bincount(ids, minlength=count).cumsum(0)
    return torch.nn.functional.pad(ends, (1, 0))


def _split(ptr: Tensor, index: Tensor, perm: Tensor, rows: int) -> SplitCSR:
    """The same of lists of any integers, in the smallest that hold them."""
    kind = _integers(max(len(index), len(ptr), rows))
    return in_pieces(*(x.to(kind) for x in (ptr, index, perm)))


@one_call
def in_pieces(ptr: Tensor, index: Tensor, perm: Tensor) -> SplitCSR:
    """CSR in one direction from its lists: pieces of about equal size where a segment has too many
    edges."""
    most = max(MOST, min(LONG * len(index) // max(len(ptr) - 1, 1), len(index) // PIECES))
    if not len(index) or int(ptr.diff().max()) <= most:
        return SplitCSR(ptr, index, perm, ptr, *[ptr[:0]] * 4)
    arrays = (torch.from_numpy(x).to(ptr) for x in _pieces(ptr.cpu().numpy(), most))
    return SplitCSR(ptr, index, perm, *arrays)


def _integers(most: int) -> torch.dtype:
    return torch.int32 if most < SMALL else torch.int64


def _pieces(ptr: Ints, most: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Of at most `most` edges: pieces, owner, slot, split and split_ptr.

    >>> [x.tolist() for x in _pieces(np.array([0, 1, 6]), 2)]
    [[0, 1, 2, 4, 6], [0, 1, 1, 1], [-1, 0, 1, 2], [1], [0, 3]]
    """
    sizes = np.diff(ptr)
    parts = np.maximum(-(-sizes // most), 1)
    several = parts > 1
    owner = np.repeat(np.arange(len(sizes)), parts)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    low = ptr[:-1][owner] + nth * sizes[owner].astype(np.int64) // parts[owner]
    of = several[owner]
    slot = np.where(of, np.cumsum(of) - 1, -1)
    split_ptr = np.concatenate([[0], np.cumsum(parts[several])])
    return np.append(low, ptr[-1]), owner, slot, np.flatnonzero(several), split_ptr


@dataclass(frozen=True, eq=False)
class Grouping:
    """Member t has the rows order[ptr[t]:ptr[t+1]].

    A tile (a chunk) k has the places from low[k] on, at most TILE (CHUNK) of them and of one
    member; the chunks of member t are those from chunk_ptr[t] to chunk_ptr[t+1].
    """

    order: Tensor
    ptr: Tensor
    tile_member: Tensor
    tile_low: Tensor
    chunk_member: Tensor
    chunk_low: Tensor
    chunk_ptr: Tensor

    @property
    def members(self) -> int:
        return self.ptr.shape[0] - 1

    @cached_property
    def is_sorted(self) -> bool:
        """Whether the rows of a member are side by side."""
        return bool((self.order.diff() == 1).all()) and not (len(self.order) and self.order[0])

    @cached_property
    def places(self) -> Tensor:
        """Where each row is in `order`."""
        numbers = torch.arange(len(self.order), dtype=self.order.dtype, device=self.order.device)
        return torch.empty_like(numbers).scatter_(0, self.order.long(), numbers)

    @cached_property
    def padded(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Rows of members side by side, (members, width), where each row is among them, and which
        of them are padding; None where most would be, or members have enough rows by themselves.

        >>> rows, places, padding = grouping(torch.tensor([1, 0, 1]), 2).padded
        >>> rows.tolist(), places.tolist(), padding.tolist()
        ([[1, 0], [0, 2]], [2, 0, 3], [[False, True], [False, False]])
        """
        sizes, count = self.ptr.diff(), len(self.order)
        width = int(sizes.max()) if count else 0
        if not 0 < width <= MANY or self.members * width > MOST_PADDED * count:
            return None
        steps = torch.arange(width, dtype=self.ptr.dtype)
        padding = steps >= sizes[:, None]
        rows = self.order[(self.ptr[:-1, None] + steps).clamp(max=count - 1)]
        places = torch.empty_like(self.order, dtype=torch.int64)
        places[self.order.long()] = (~padding).flatten().nonzero()[:, 0]
        return rows.masked_fill_(padding, 0), places, padding

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All of it, as operators take it."""
        return [getattr(self, name) for name in self.__dataclass_fields__]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> Grouping:
        """Back from `tensors`."""
        return Grouping(*tensors)


@one_call
def grouping(member: Tensor, count: int) -> Grouping:
    """Row r is multiplied by matrix `member[r]` of a family of `count`.

    >>> found = grouping(torch.tensor([1, 0, 1]), 2)
    >>> found.order.tolist(), found.ptr.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    sizes = torch.bincount(member, minlength=count)
    ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    tiles, chunks = (_tiles(ptr.numpy(), most) for most in (TILE, CHUNK))
    order = member.argsort(stable=True).int()
    return Grouping(order, ptr.int(), *tiles[:2], *chunks)


def _tiles(ptr: Ints, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The member and the start of each piece, and which pieces each member has."""
    parts = -(-np.diff(ptr) // most)
    member = np.repeat(np.arange(len(parts)), parts)
    low = ptr[:-1][member] + ranges(np.zeros(len(parts), np.int64), parts) * most
    return _int32(member), _int32(low), _int32(pointer(parts))


def _int32(values: Ints) -> Tensor:
    return torch.from_numpy(values.astype(np.int32))
