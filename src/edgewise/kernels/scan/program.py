"""What a loop over levels computes: slots of a workspace, and instructions over stretches of rows.

gather    out[i] = a[index[i]]          scatter   out[index[i]] += a[i]
linear    out[i] += W a[i]              add       out[i] += a[i]
multiply  out[i] = a[i] ⊙ b[i]          others    out[i] = f(a[i])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

GATHER, SCATTER, LINEAR, ADD, MULTIPLY, AFFINE, TANH, SIGMOID, RELU, EXP, SQUARE = range(11)
ACCUMULATE = {SCATTER, LINEAR, ADD}  # add to what is there


@dataclass(frozen=True)
class Slot:
    """`rows` values of `width` numbers each, from `offset` on; slots may overlap: a stretch of
    rows of another is the same numbers."""

    offset: int
    rows: int
    width: int

    @property
    def stop(self) -> int:
        """The first number after it."""
        return self.offset + self.rows * self.width

    def view(self, work: Tensor) -> Tensor:
        """Its numbers in a workspace, (rows, width)."""
        return work[self.offset : self.stop].view(self.rows, self.width)


@dataclass(frozen=True)
class Instruction:
    """`domain` says which rows it computes at each level; `index` and `weight` are numbers of
    tables and matrices, -1 for none; alpha and beta those of alpha · a + beta."""

    op: int
    out: int
    a: int
    domain: int
    b: int = -1
    index: int = -1
    weight: int = -1
    alpha: float = 1.0
    beta: float = 0.0


@dataclass(frozen=True, eq=False)
class Scan:
    """Instructions with their schedule: `which` of them runs on rows `first` ≤ i < `last`.

    `inputs` are the slots that are filled before the loop, each from one column (batch, rows,
    width); `results` those that are given back as such.
    """

    slots: tuple[Slot, ...]
    instructions: tuple[Instruction, ...]
    tables: tuple[np.ndarray, ...]
    shapes: tuple[tuple[int, int], ...]  # of matrices, (out, in)
    inputs: tuple[int, ...]
    results: tuple[int, ...]
    batch: int
    which: np.ndarray
    first: np.ndarray
    last: np.ndarray
    levels: int
    size: int

    @cached_property
    def work(self) -> tuple[int, int]:
        """Multiplications by matrices, and other operations."""
        products, others = 0, 0
        counts = np.bincount(self.which, self.last - self.first, len(self.instructions))
        for instruction, rows in zip(self.instructions, counts.tolist(), strict=True):
            if instruction.weight >= 0:
                products += int(rows) * prod(self.shapes[instruction.weight])
            elif instruction.op != GATHER:
                others += int(rows) * self.slots[instruction.out].width
        return products, others

    @property
    def flops(self) -> int:
        """Of all levels; a multiplication by a matrix is followed by an addition."""
        products, others = self.work
        return 2 * products + others

    @property
    def multiplications(self) -> int:
        """Of one level, on average."""
        return self.work[0] // max(self.levels, 1)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What it computes: equal ones are the same function."""
        arrays = (self.which, self.first, self.last, *self.tables)
        parts = (self.slots, self.instructions, self.shapes, self.inputs, self.results, self.batch)
        return (*parts, *(array.tobytes() for array in arrays))

    @cached_property
    def indices(self) -> list[Tensor]:
        """The tables as tensors."""
        return [torch.from_numpy(table) for table in self.tables]

    @cached_property
    def readers(self) -> dict[int, int]:
        """How many instructions read numbers of the storage of each slot, keyed by slot."""
        operands = [at for x in self.instructions for at in (x.a, x.b) if at >= 0]
        marks = np.zeros(self.size, np.int32)
        for at in (*self.results, *operands):
            slot = self.slots[at]
            marks[slot.offset : slot.stop] += 1
        return {
            at: int(marks[slot.offset : slot.stop].max(initial=0))
            for at, slot in enumerate(self.slots)
        }


@dataclass(eq=False)
class _Draft:
    """A slot while a program is written: `inside` another one, from some row on."""

    rows: int
    width: int
    inside: tuple[int, int] | None = None


@dataclass(eq=False)
class ScanBuilder:
    """A program while it is written; rows are those of one sample of a batch."""

    batch: int
    drafts: list[_Draft] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    tables: list[np.ndarray] = field(default_factory=list)
    shapes: list[tuple[int, int]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    domains: list[np.ndarray] = field(default_factory=list)  # where each level begins

    def domain(self, levels: np.ndarray, count: int) -> int:
        """Rows by the ascending level of each, of `count` levels."""
        self.domains.append(np.searchsorted(levels, np.arange(count + 1)))
        return len(self.domains) - 1

    def slot(self, rows: int, width: int) -> int:
        self.drafts.append(_Draft(rows, width))
        return len(self.drafts) - 1

    def stretch(self, of: int, start: int, rows: int) -> int:
        """Some rows of a slot, as a slot."""
        self.drafts.append(_Draft(rows, self.drafts[of].width, (of, start)))
        return len(self.drafts) - 1

    def place(self, slot: int, inside: int, start: int) -> bool:
        """Let a slot be rows of another, unless it is of one already."""
        draft = self.drafts[slot]
        if draft.inside is not None or draft.width != self.drafts[inside].width:
            return False
        draft.inside = (inside, start)
        return True

    def input(self, rows: int, width: int) -> int:
        """A slot that is filled before the loop."""
        self.inputs.append(self.slot(rows, width))
        return self.inputs[-1]

    def matrix(self, rows: int, columns: int) -> int:
        self.shapes.append((rows, columns))
        return len(self.shapes) - 1

    def table(self, rows: np.ndarray) -> int:
        self.tables.append(rows)
        return len(self.tables) - 1

    def add(self, instruction: Instruction) -> int:
        """Write an instruction; the slot that it computes."""
        self.instructions.append(instruction)
        return instruction.out

    def finished(self, results: Sequence[int], levels: int) -> Scan:
        """The program, with its slots placed and its instructions scheduled."""
        slots, size = self._slots()
        which, first, last = self._schedule(levels)
        lanes = np.arange(self.batch)
        tables = [
            (table[:, None] * self.batch + lanes).reshape(-1) if self.batch > 1 else table
            for table in self.tables
        ]
        return Scan(
            slots,
            tuple(self.instructions),
            tuple(np.ascontiguousarray(table, dtype=np.int64) for table in tables),
            tuple(self.shapes),
            tuple(self.inputs),
            tuple(results),
            self.batch,
            which,
            first * self.batch,
            last * self.batch,
            levels,
            size,
        )

    def _slots(self) -> tuple[tuple[Slot, ...], int]:
        size, offsets = 0, dict[int, int]()
        for at, draft in enumerate(self.drafts):
            if draft.inside is None:
                offsets[at] = size
                size += draft.rows * draft.width * self.batch

        def offset(at: int) -> int:
            draft = self.drafts[at]
            if draft.inside is None:
                return offsets[at]
            other, row = draft.inside
            return offset(other) + row * draft.width * self.batch

        slots = (
            Slot(offset(at), draft.rows * self.batch, draft.width)
            for at, draft in enumerate(self.drafts)
        )
        return tuple(slots), size

    def _schedule(self, levels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Level by level, in the order of instructions, those that have rows there."""
        pieces = []
        for number, instruction in enumerate(self.instructions):
            starts = self.domains[instruction.domain]
            at = np.flatnonzero(starts[1:] > starts[:-1])
            pieces.append((at, np.full(len(at), number), starts[at], starts[at + 1]))
        level, which, first, last = (np.concatenate(part) for part in zip(*pieces, strict=True))
        order = np.lexsort((which, level))
        return tuple(np.ascontiguousarray(x[order]) for x in (which, first, last))  # type: ignore[return-value]
