"""What a loop over levels computes: slots of a workspace, and instructions over stretches of rows.

gather    out[i] = a[index[i]]          scatter   out[index[i]] += a[i]
linear    out[i] += W a[i]              add       out[i] += a[i]
multiply  out[i] = a[i] ⊙ b[i]          affine    out[i] = alpha a[i] + beta
square    out[i] = a[i]²                others    out[i] = f(a[i]), the functions of `SLOPES`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from edgewise.kernels.tape.instructions import SLOPES

ACCUMULATE = {"scatter", "linear", "add"}  # add to what is there
FUNCTIONS = {"affine", "square", *SLOPES}


@dataclass(frozen=True)
class Slot:
    """`rows` values of `width` numbers each, from `offset` on; slots may overlap: a stretch of
    rows of another, its `root`, from `row` on, is the same numbers."""

    offset: int
    rows: int
    width: int
    root: int
    row: int

    @property
    def stop(self) -> int:
        """The first number after it."""
        return self.offset + self.rows * self.width


@dataclass(frozen=True)
class Instruction:
    """`domain` says which rows it computes at each level; `index` and `weight` are numbers of
    tables and matrices, -1 for none; alpha and beta those of alpha · a + beta."""

    op: str
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
    width); `lifted` are products that are added to some of them then: slot, number of the source
    (batch, rows, in) and of the matrix. `results` are slots that are given back as columns.
    """

    slots: tuple[Slot, ...]
    instructions: tuple[Instruction, ...]
    tables: tuple[np.ndarray, ...]
    shapes: tuple[tuple[int, int], ...]  # of matrices, (out, in)
    inputs: tuple[int, ...]
    lifted: tuple[tuple[int, int, int], ...]
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
            elif instruction.op != "gather":
                others += int(rows) * self.slots[instruction.out].width
        return products, others

    @property
    def flops(self) -> int:
        """Of all levels; a multiplication by a matrix is followed by an addition."""
        products, others = self.work
        rows = [(self.slots[slot].rows, prod(self.shapes[m])) for slot, _, m in self.lifted]
        return 2 * (products + sum(n * size for n, size in rows)) + others

    @property
    def multiplications(self) -> int:
        """Of one level, on average."""
        return self.work[0] // max(self.levels, 1)

    def parts(self, tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Columns of inputs, sources of lifted products, and matrices."""
        count = len(self.inputs)
        end = count + 1 + max((source for _, source, _ in self.lifted), default=-1)
        return tensors[:count], tensors[count:end], tensors[end:]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What it computes: equal ones are the same function."""
        arrays = (self.which, self.first, self.last, *self.tables)
        parts = (self.slots, self.instructions, self.shapes, self.inputs, self.lifted)
        return (*parts, self.results, self.batch, *(array.tobytes() for array in arrays))


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
    lifted: list[tuple[int, int, int]] = field(default_factory=list)
    domains: list[np.ndarray] = field(default_factory=list)  # where each level begins

    def domain(self, levels: np.ndarray, count: int) -> int:
        """Rows by the ascending level of each, of `count` levels."""
        starts = np.searchsorted(levels, np.arange(count + 1))
        for at, known in enumerate(self.domains):
            if np.array_equal(known, starts):
                return at
        self.domains.append(starts)
        return len(self.domains) - 1

    def slot(self, rows: int, width: int) -> int:
        self.drafts.append(_Draft(rows, width))
        return len(self.drafts) - 1

    def stretch(self, of: int, start: int, rows: int) -> int:
        """Some rows of a slot, as a slot."""
        self.drafts.append(_Draft(rows, self.drafts[of].width, (of, start)))
        return len(self.drafts) - 1

    def place(self, slot: int, inside: int, start: int) -> bool:
        """Let a slot be rows of another; all rows of one that is inside of none may be, too."""
        draft = self.drafts[slot]
        if draft.inside is not None and draft.inside[1] == 0:
            other = self.drafts[draft.inside[0]]
            if other.rows == draft.rows:
                slot, draft = draft.inside[0], other
        if draft.inside is not None or draft.width != self.drafts[inside].width:
            return False
        if self._root(inside) == slot:
            return False
        draft.inside = (inside, start)
        return True

    def _root(self, slot: int) -> int:
        inside = self.drafts[slot].inside
        return slot if inside is None else self._root(inside[0])

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
        which, first, last = self._schedule()
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
            tuple(self.lifted),
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

        def root(at: int) -> tuple[int, int]:
            inside = self.drafts[at].inside
            if inside is None:
                return at, 0
            found, row = root(inside[0])
            return found, row + inside[1] * self.batch

        slots = []
        for at, draft in enumerate(self.drafts):
            own, row = root(at)
            start = offsets[own] + row * draft.width
            slots.append(Slot(start, draft.rows * self.batch, draft.width, own, row))
        return tuple(slots), size

    def _schedule(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Level by level, in the order of instructions, those that have rows there."""
        pieces = []
        for number, instruction in enumerate(self.instructions):
            starts = self.domains[instruction.domain]
            at = np.flatnonzero(starts[1:] > starts[:-1])
            pieces.append((at, np.full(len(at), number), starts[at], starts[at + 1]))
        level, which, first, last = (np.concatenate(part) for part in zip(*pieces, strict=True))
        order = np.lexsort((which, level))
        return tuple(np.ascontiguousarray(x[order]) for x in (which, first, last))  # type: ignore[return-value]
