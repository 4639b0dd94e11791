"""The constants of a physical plan for any batch of samples: gathered from those of all samples.

How each constant depends on the batch is found by comparing the plans of two batches, and every
finding is tried: what it gives for the second batch must equal what was joined and lowered there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from edgewise.kernels.edges import EdgeIndex, Grouping, grouping
from edgewise.kernels.edges.index import SplitCSR, in_pieces
from edgewise.physical.samples.axes import SampleAxis, SomeSamples, axis_of


class OfBatch(Protocol):
    """Something of a plan that depends on the batch."""

    def of(self, batch: SomeSamples) -> Any: ...


@dataclass(frozen=True, eq=False)
class Same:
    """What is the same in every batch."""

    thing: Any

    def of(self, batch: SomeSamples) -> Any:
        return self.thing


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """A tensor with a row for each row of an axis, at dimension `dim`.

    With `into`, its numbers are rows of that axis, as offsets from where their sample begins in
    their block (`block`, None where there is one); what is negative stays as it is.
    """

    rows: Tensor
    axis: SampleAxis
    dim: int
    into: SampleAxis | None = None
    block: Tensor | None = None
    signed: bool = False

    def of(self, batch: SomeSamples) -> Tensor:
        return batch.once(self, lambda: self._gathered(batch))

    def _gathered(self, batch: SomeSamples) -> Tensor:
        rows = batch.rows(self.axis)
        found = self.rows.index_select(0, rows)
        if self.into is not None:
            if self.block is None:
                shift = batch.shift(self.axis, self.into)
            else:
                starts = torch.from_numpy(batch.starts(self.into))
                shift = starts[self.block.index_select(0, rows), batch.entries(self.axis)]
            shift = shift.reshape(-1, *[1] * (found.ndim - 1)).to(found.dtype)
            found = torch.where(found < 0, found, found + shift) if self.signed else found + shift
        return found.movedim(0, self.dim) if self.dim else found


@dataclass(frozen=True, eq=False)
class Size:
    """The rows of an axis in the batch, `times` as many."""

    axis: SampleAxis
    times: int

    def of(self, batch: SomeSamples) -> int:
        return self.times * batch.total(self.axis)


@dataclass(frozen=True, eq=False)
class Tuple:
    """Sizes together."""

    parts: tuple[OfBatch, ...]
    kind: type

    def of(self, batch: SomeSamples) -> Any:
        return self.kind(part.of(batch) for part in self.parts)


@dataclass(frozen=True, eq=False)
class GatheredCSR:
    """Half of an `EdgeIndex`: the sizes of segments, and its two lists."""

    sizes: OfBatch
    index: OfBatch
    perm: OfBatch

    def of(self, batch: SomeSamples) -> SplitCSR:
        sizes, index, perm = (part.of(batch) for part in (self.sizes, self.index, self.perm))
        ptr = torch.nn.functional.pad(sizes.cumsum(0, dtype=index.dtype), (1, 0))
        return in_pieces(ptr, index, perm)


@dataclass(frozen=True, eq=False)
class GatheredEdges:
    """An `EdgeIndex`."""

    rows: GatheredCSR
    columns: GatheredCSR

    def of(self, batch: SomeSamples) -> EdgeIndex:
        return batch.once(self, lambda: EdgeIndex(self.rows.of(batch), self.columns.of(batch)))


@dataclass(frozen=True, eq=False)
class GatheredGroups:
    """A `Grouping`: the member that multiplies each row."""

    member: OfBatch
    count: int

    def of(self, batch: SomeSamples) -> Grouping:
        return batch.once(self, lambda: grouping(self.member.of(batch), self.count))


class Unknown(Exception):
    """Internal: how something depends on the batch was not found."""


class Comparison:
    """Finds how what is there for all samples depends on the batch, by that of a second batch."""

    def __init__(self, axes: Sequence[SampleAxis], second: SomeSamples) -> None:
        self.second = second
        self.axes: dict[bytes, SampleAxis] = {}
        self.found: list[tuple[Tensor, Tensor, OfBatch]] = []
        self.edges: dict[Any, GatheredEdges] = {}
        for axis in axes:
            self.add(axis)

    def add(self, axis: SampleAxis) -> SampleAxis:
        return self.axes.setdefault(axis.mark, axis)

    def sized(self, one: int, two: int) -> Iterator[SampleAxis]:
        """The axes that have this many rows in both batches."""
        for axis in list(self.axes.values()):
            if (axis.total, self.second.total(axis)) == (one, two):
                yield axis

    def size(self, one: Any, two: Any) -> OfBatch:
        """Of an integer, or of several."""
        if isinstance(one, tuple | list):
            pairs = zip(one, two, strict=True)
            return Tuple(tuple(self.size(a, b) for a, b in pairs), type(one))
        if one == two:
            return Same(one)
        found: dict[bytes, Size] = {}
        for axis in self.axes.values():
            total, other = axis.total, self.second.total(axis)
            if total and one % total == 0 and other * (one // total) == two:
                times = one // total
                found.setdefault((axis.counts.sum(0) * times).tobytes(), Size(axis, times))
        if len(found) != 1:
            raise Unknown(f"a length of {one}")
        return next(iter(found.values()))

    def thing(self, one: Any, two: Any) -> OfBatch:
        """Of a constant."""
        match one, two:
            case Tensor(), Tensor():
                return self.tensor(one, two)
            case EdgeIndex(), EdgeIndex():
                return self._edges(one, two)
            case Grouping(), Grouping():
                if one.members == two.members:
                    return GatheredGroups(self.tensor(*map(_members, (one, two))), one.members)
        if one is two:
            return Same(one)
        raise Unknown(f"a constant of type {type(one).__name__}")

    def _edges(self, one: EdgeIndex, two: EdgeIndex) -> GatheredEdges:
        rows, columns = self._half(one.rows, two.rows), self._half(one.columns, two.columns)
        # equal lists are found once, so equal indices have the same ones
        key = tuple(id(part) for half in (rows, columns) for part in vars(half).values())
        return self.edges.setdefault(key, GatheredEdges(rows, columns))

    def _half(self, one: SplitCSR, two: SplitCSR) -> GatheredCSR:
        index = self.tensor(one.index, two.index)
        sizes = self.tensor(one.ptr.diff(), two.ptr.diff())
        return GatheredCSR(sizes, index, self.tensor(one.perm, two.perm))

    def tensor(self, one: Tensor, two: Tensor) -> OfBatch:
        for known, other, found in self.found:
            if _equal(known, one) and _equal(other, two):
                return found
        made = self._tensor(one, two)
        self.found.append((one, two, made))
        return made

    def _tensor(self, one: Tensor, two: Tensor) -> OfBatch:
        if one.ndim != two.ndim or one.dtype != two.dtype:
            raise Unknown("a tensor of another shape")
        other = [d for d in range(one.ndim) if one.shape[d] != two.shape[d]]
        if not other and torch.equal(one, two):
            return Same(one)
        if len(other) != 1:
            raise Unknown(f"a tensor {tuple(one.shape)}")
        dim = other[0]
        rows = one.movedim(dim, 0).contiguous()
        for candidate in self._candidates(rows, dim, len(rows), two.shape[dim]):
            if torch.equal(candidate.of(self.second), two):
                self.add(candidate.axis)
                return candidate
        raise Unknown(f"a tensor {tuple(one.shape)}")

    def _candidates(self, rows: Tensor, dim: int, one: int, two: int) -> Iterator[GatheredRows]:
        axes = list(self.sized(one, two))
        for axis in axes:
            yield GatheredRows(rows, axis, dim)
        if rows.is_floating_point() or rows.dtype == torch.bool:
            return
        for into in list(self.axes.values()):
            yield from self._into(rows, dim, axes, into)

    def _into(
        self, rows: Tensor, dim: int, axes: Sequence[SampleAxis], into: SampleAxis
    ) -> Iterator[GatheredRows]:
        """Numbers that are rows of an axis."""
        signed = bool((rows < 0).any())
        if not into.total or int(rows.max()) >= into.total:
            return
        parts = into.parts_of(rows.clamp(min=0))
        if rows.ndim == 1 and not signed:
            samples = into.counts.shape[1]
            made = axis_of((parts % samples).numpy(), samples)
            axes = axes if made is None else [*axes, self.axes.get(made.mark, made)]
        local = rows - torch.from_numpy(into.starts.reshape(-1))[parts].to(rows.dtype)
        local = torch.where(rows < 0, rows, local) if signed else local
        block = parts // into.counts.shape[1] if into.blocks > 1 else None
        if block is not None and rows.ndim > 1:
            return
        for axis in axes:
            yield GatheredRows(local, axis, dim, into, block, signed)


def _equal(one: Tensor, two: Tensor) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)


def _members(groups: Grouping) -> Tensor:
    """The member of each row."""
    ids = torch.arange(groups.members).repeat_interleave(groups.ptr.diff().long())
    return torch.empty_like(ids).index_copy_(0, groups.order.long(), ids)
