"""Writes a tape: instructions on addresses of one array of numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.tape.machine import OPS, PICK, PLACE, PRODUCT, SUM, WIDTH

MOST = 1 << 16  # elements of one value: larger ones are worth a call of torch


class NotRecordedError(Exception):
    """Why a computation has no tape."""


@dataclass(eq=False)
class TapeLine:
    """A line of code, the addresses that it reads, and those that it writes."""

    line: list[int]
    reads: Sequence[np.ndarray]
    writes: np.ndarray


class TapeWriter:
    """Values are tensors of addresses, in the shape of what they stand for."""

    def __init__(self) -> None:
        self.size = 0
        self.starts: list[int] = []  # of the blocks of addresses that one instruction writes
        self.constants: list[tuple[int, np.ndarray]] = []
        self.instructions: list[TapeLine] = []
        self.index = np.zeros(0, np.int64)
        self._lists: list[np.ndarray] = []
        self._listed = 0
        self._numbers: dict[float, int] = {}

    def fresh(self, *shape: int) -> Tensor:
        """New addresses."""
        count = int(np.prod(shape, dtype=np.int64))
        if count > MOST:
            raise NotRecordedError(f"a value of {count:,} elements is worth a call of torch")
        self.starts.append(self.size)
        self.size += count
        return torch.arange(self.size - count, self.size).reshape(shape)

    def constant(self, values: Tensor) -> Tensor:
        """Addresses of values that stay."""
        found = self.fresh(*values.shape)
        if values.numel():
            held = values.detach().to(torch.float64).reshape(-1).numpy().copy()
            self.constants.append((int(found.reshape(-1)[0]), held))
        return found

    def number(self, value: float) -> Tensor:
        """The address of a constant number."""
        if value not in self._numbers:
            self._numbers[value] = int(self.constant(torch.tensor(value, dtype=torch.float64)))
        return torch.tensor(self._numbers[value])

    def elementwise(
        self, name: str, operands: Sequence[Tensor], out: Tensor | None = None
    ) -> Tensor:
        """f(a, b, c) element by element, at the addresses of `out` if there are any."""
        shape = torch.broadcast_shapes(*[o.shape for o in operands]) if out is None else out.shape
        flat = [o.expand(shape).reshape(-1).numpy() for o in operands]
        target = self.fresh(*shape) if out is None else out
        writes = target.reshape(-1).numpy()
        if not len(writes):
            return target
        where = _steps(writes)
        if not _is_line(writes):  # computed apart, then put where it belongs
            apart = self.elementwise(name, operands).reshape(-1).numpy()
            line = [PLACE, len(writes), 0, 0, int(apart[0]), 1, 0, 0, 0, 0, self._list(writes), 0]
            self._emit(line, [apart], writes)
            return target
        flat = [self._gathered(addresses) for addresses in flat]
        line = [OPS[name], len(writes), *where, *(part for read in flat for part in _steps(read))]
        self._emit([*line, *[0] * (WIDTH - len(line))], flat, writes)
        return target

    def merge_at(self, op: int, places: Tensor, values: Tensor) -> None:
        """Add values at addresses, of which some may be the same, or keep the extreme."""
        target, source = (t.reshape(-1).numpy() for t in torch.broadcast_tensors(places, values))
        if len(target):
            source = self._gathered(source)
            start, step = _steps(source)
            line = [op, len(target), 0, 0, start, step, 0, 0, 0, 0, self._list(target), 0]
            self._emit(line, [source, target], target)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A product of matrices, or of as many as both have."""
        if a.dim() == 3:
            return torch.stack([self.product(x, y) for x, y in zip(a, b, strict=True)])
        (rows, inner), columns = a.shape, b.shape[1]
        out = self.fresh(rows, columns)
        if out.numel():
            x, y = self._matrix(a), self._matrix(b)
            (start, a_row, a_column), (other, b_row, b_column) = _matrix_steps(x), _matrix_steps(y)
            line = [PRODUCT, rows, int(out[0, 0]), columns, start, a_row, other, b_row, inner]
            self._emit([*line, a_column, b_column, 0], [x, y], out.reshape(-1).numpy())
        return out

    def aggregate(self, op: int, values: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
        """Sums or extremes over some axes, or over all if none is named."""
        if not values.dim():
            return values
        axes = {d % values.dim() for d in dims or range(values.dim())}
        rest = [d for d in range(values.dim()) if d not in axes]
        shape = [1 if d in axes else n for d, n in enumerate(values.shape)] if keep else []
        shape = shape or [values.shape[d] for d in rest]
        count = int(np.prod([values.shape[d] for d in rest], dtype=np.int64))
        if not values.numel():
            if op != SUM:
                raise NotRecordedError("an extreme of nothing")
            return self.number(0.0).expand(shape)
        table = values.permute(*rest, *sorted(axes)).reshape(count, -1)
        out = self.fresh(count)
        groups = self._matrix(table)
        line = [op, count, int(out[0]), table.shape[1], *_matrix_steps(groups), 0, 0, 0, 0, 0]
        self._emit(line, [groups], out.numpy())
        return out.reshape(shape)

    def code(self, first: int, outputs: Sequence[Tensor]) -> np.ndarray:
        """The lines from `first` on that outputs need."""
        needed = {int(b) for out in outputs for b in self._blocks(out.reshape(-1).numpy())}
        found = []
        for instruction in reversed(self.instructions[first:]):
            if needed.isdisjoint(self._blocks(instruction.writes)):
                continue
            for addresses in instruction.reads:
                needed.update(self._blocks(addresses))
            found.append(instruction.line)
        return np.array(found[::-1], np.int64).reshape(-1, WIDTH)

    def array(self) -> np.ndarray:
        """Numbers for all addresses, those of constants as they are."""
        found = np.zeros(self.size)
        for start, values in self.constants:
            found[start : start + len(values)] = values
        self.index = np.concatenate([np.zeros(0, np.int64), *self._lists])
        return found

    def _emit(self, line: list[int], reads: Sequence[np.ndarray], writes: np.ndarray) -> None:
        self.instructions.append(TapeLine(line, reads, writes))

    def _blocks(self, addresses: np.ndarray) -> list[int]:
        found = np.unique(addresses).tolist()
        return sorted({bisect_right(self.starts, address) for address in found})

    def _list(self, addresses: np.ndarray) -> int:
        self._lists.append(addresses)
        self._listed += len(addresses)
        return self._listed - len(addresses)

    def _gathered(self, addresses: np.ndarray) -> np.ndarray:
        """Addresses with a step; those that have none are gathered."""
        if _is_line(addresses):
            return addresses
        out = self.fresh(len(addresses)).numpy()
        at = self._list(addresses)
        self._emit([PICK, len(out), int(out[0]), 1, 0, 0, 0, 0, 0, 0, at, 0], [addresses], out)
        return out

    def _matrix(self, addresses: Tensor) -> np.ndarray:
        """The addresses of a matrix with steps; one that has none is gathered."""
        table = addresses.numpy()
        start, down, right = _matrix_steps(table)
        rows, columns = table.shape
        wanted = start + down * np.arange(rows)[:, None] + right * np.arange(columns)
        if np.array_equal(wanted, table):
            return table
        return self._gathered(table.reshape(-1)).reshape(table.shape)


def _steps(addresses: np.ndarray) -> tuple[int, int]:
    """Start and step of addresses."""
    start = int(addresses[0])
    return start, int(addresses[1]) - start if len(addresses) > 1 else 0


def _is_line(addresses: np.ndarray) -> bool:
    start, step = _steps(addresses)
    return np.array_equal(addresses, start + step * np.arange(len(addresses)))


def _matrix_steps(table: np.ndarray) -> tuple[int, int, int]:
    """Start, and steps down and to the right."""
    if not table.size:
        return 0, 0, 0
    down = int(table[1, 0] - table[0, 0]) if len(table) > 1 else 0
    return int(table[0, 0]), down, int(table[0, 1] - table[0, 0]) if table.shape[1] > 1 else 0
