"""A loop over levels written out, one operation of torch after another: for traces."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.kernels.scan.program import ACCUMULATE, Instruction, Scan


class _Memory:
    """A workspace in pieces that are never overwritten: stretches of numbers by their offset."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.pieces: list[Tensor] = []

    def read(self, start: int, end: int, like: Tensor) -> Tensor:
        """The numbers there; zeros where nothing was written."""
        at = max(bisect_right(self.starts, start) - 1, 0)
        found = []
        while start < end:
            begin = self.starts[at] if at < len(self.starts) else end
            piece = self.pieces[at] if at < len(self.starts) else like.new_zeros(0)
            if begin > start:
                stop = min(begin, end)
                found.append(like.new_zeros(stop - start))
            else:
                stop = max(min(end, begin + piece.shape[0]), start)
                if stop > start:
                    found.append(piece[start - begin : stop - begin])
                at += 1
            start = stop
        return found[0] if len(found) == 1 else torch.cat(found)

    def write(self, start: int, values: Tensor) -> None:
        """Put numbers there, in place of those that are there."""
        end = start + values.shape[0]
        low = bisect_right(self.starts, start) - 1
        low = low if low >= 0 and self.starts[low] + self.pieces[low].shape[0] > start else low + 1
        high = bisect_right(self.starts, end - 1)
        pieces: list[tuple[int, Tensor]] = []
        for at in range(low, high):
            begin, piece = self.starts[at], self.pieces[at]
            if begin < start:
                pieces.append((begin, piece[: start - begin]))
            if begin + piece.shape[0] > end:
                pieces.append((end, piece[end - begin :]))
        pieces = sorted([*pieces, (start, values)], key=lambda pair: pair[0])
        self.starts[low:high] = [begin for begin, _ in pieces]
        self.pieces[low:high] = [piece for _, piece in pieces]


def unrolled(scan: Scan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of a scan, as `run_scan` gives them."""
    memory = _Memory()
    columns, sources, matrices = scan.parts(tensors)
    for at, column in zip(scan.inputs, columns, strict=True):
        slot = scan.slots[at]
        for into, source, matrix in scan.lifted:
            if into == at:
                column = column + torch.nn.functional.linear(sources[source], matrices[matrix])
        rows = slot.rows // scan.batch
        wide = column.expand(scan.batch, rows, slot.width).transpose(0, 1).reshape(-1)
        memory.write(slot.offset, wide)
    stretches = zip(scan.which.tolist(), scan.first.tolist(), scan.last.tolist(), strict=True)
    like = tensors[0]
    for j, lo, hi in stretches:
        _run(scan, scan.instructions[j], lo, hi, memory, matrices, like)
    found = []
    for at in scan.results:
        slot = scan.slots[at]
        numbers = memory.read(slot.offset, slot.stop, like)
        found.append(numbers.reshape(-1, scan.batch, slot.width).transpose(0, 1).contiguous())
    return tuple(found)


def _run(
    scan: Scan,
    x: Instruction,
    lo: int,
    hi: int,
    memory: _Memory,
    matrices: Sequence[Tensor],
    like: Tensor,
) -> None:
    def read(at: int, first: int, last: int) -> Tensor:
        slot = scan.slots[at]
        begin = slot.offset + first * slot.width
        found = memory.read(begin, begin + (last - first) * slot.width, like)
        return found.reshape(last - first, slot.width)

    def write(at: int, first: int, value: Tensor) -> None:
        slot = scan.slots[at]
        value = value.expand(-1, slot.width).reshape(-1)
        memory.write(slot.offset + first * slot.width, value)

    if x.op in ("gather", "scatter"):
        table = scan.tables[x.index][lo:hi]  # a trace has no numbers of tensors
        low, high = int(table.min()), int(table.max()) + 1
        index = torch.from_numpy(table - low)
        if x.op == "gather":
            write(x.out, lo, read(x.a, low, high).index_select(0, index))
        else:
            write(x.out, low, read(x.out, low, high).index_add(0, index, read(x.a, lo, hi)))
        return
    a = read(x.a, lo, hi)
    if x.op == "linear":
        value = torch.nn.functional.linear(a, matrices[x.weight])
    elif x.op == "multiply":
        value = a * read(x.b, lo, hi)
    elif x.op == "add":
        value = a
    elif x.op == "affine":
        value = a * x.alpha + x.beta if x.beta else a * x.alpha
    else:
        value = getattr(torch, x.op)(a)
    write(x.out, lo, read(x.out, lo, hi) + value if x.op in ACCUMULATE else value)
