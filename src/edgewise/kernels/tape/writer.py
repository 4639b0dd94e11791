"""Writes a tape: instructions on addresses of one array of numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.tape.instructions import NONE, OPS, WIDTH, Operand, line, shifted

MOST = 1 << 16  # elements of one value: larger ones are worth a call of torch
LARGEST = 1 << 23  # numbers of a tape
MOST_KNOWN = 1 << 12  # elements of a constant that is looked at
NUMBERS: Operand = (0, 1, 1)  # all numbers, by their address
NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0, "pow": 1.0}  # b, where f(a, b) is a
MERGED = {"scatter_add": 0.0, "scatter_max": -np.inf, "scatter_min": np.inf}  # nothing yet


class NotRecordedError(Exception):
    """Why a computation has no tape."""


@dataclass(eq=False)
class TapeLines:
    """Lines of code and their steps, the addresses that they read, and those that they write."""

    lines: list[list[int]]
    steps: np.ndarray
    reads: Sequence[np.ndarray]
    writes: np.ndarray


@dataclass(frozen=True, eq=False)
class Code:
    """Lines, the steps of a schedule over them, and lists of indices."""

    lines: np.ndarray
    steps: np.ndarray
    index: np.ndarray


class TapeWriter:
    """Values are tensors of addresses, in the shape of what they stand for."""

    def __init__(self) -> None:
        self.size = 0
        self.starts: list[int] = []  # of the blocks of addresses that one instruction writes
        self.constants: list[tuple[int, np.ndarray]] = []
        self.instructions: list[TapeLines] = []
        self._lists: list[np.ndarray] = []
        self._listed = 0
        self._numbers: dict[float, int] = {}
        self._known: dict[int, float] = {}  # constants by address
        self._computed: dict[tuple[object, ...], Tensor] = {}  # of addresses as they are now

    def fresh(self, *shape: int, most: int = MOST) -> Tensor:
        """New addresses."""
        count = int(np.prod(shape, dtype=np.int64))
        if count > most:
            raise NotRecordedError(f"a value of {count:,} elements is worth a call of torch")
        self.starts.append(self.size)
        self.size += count
        return torch.arange(self.size - count, self.size).reshape(shape)

    def copy(self, addresses: Tensor) -> Tensor:
        """New addresses for numbers that are written."""
        out = self.fresh(*addresses.shape, most=LARGEST)
        self.write("copy", out, [addresses])
        return out

    def constant(self, values: Tensor, most: int = MOST) -> Tensor:
        """Addresses of values that stay."""
        found = self.fresh(*values.shape, most=most)
        if values.numel():
            held = values.detach().to(torch.float64).reshape(-1).numpy().copy()
            start = int(found.reshape(-1)[0])
            self.constants.append((start, held))
            if len(held) <= MOST_KNOWN:
                self._known.update(enumerate(held.tolist(), start))
        return found

    def number(self, value: float) -> Tensor:
        """The address of a constant number."""
        if value not in self._numbers:
            self._numbers[value] = int(self.constant(torch.tensor(value, dtype=torch.float64)))
        return torch.tensor(self._numbers[value])

    def is_constant(self, addresses: Tensor, value: float) -> bool:
        """Whether the constant at every address is known to be this one."""
        known = self._known
        return all(known.get(at) == value for at in addresses.reshape(-1).tolist())

    def elementwise(self, name: str, operands: Sequence[Tensor], function: str = "copy") -> Tensor:
        """f(a, b, c) element by element; a slope is one of `function`."""
        shape = torch.broadcast_shapes(*[o.shape for o in operands])
        operands = [o.expand(shape) for o in operands]
        same = self._identity(name, operands)
        if same is not None:
            return same
        key = (name, function, tuple(shape), *(o.numpy().tobytes() for o in operands))
        found = self._computed.get(key)
        if found is None:
            found = self.fresh(*shape)
            self.write(name, found, operands, OPS[function])
            self._computed[key] = found
        return found

    def _identity(self, name: str, operands: Sequence[Tensor]) -> Tensor | None:
        """The operand that x · 1, x / 1, x¹, x + 0 and x − 0 are."""
        neutral = NEUTRAL.get(name)
        if neutral is None:
            return None
        a, b = operands
        if self.is_constant(b, neutral):
            return a
        return b if name in ("add", "mul") and self.is_constant(a, neutral) else None

    def write(self, name: str, out: Tensor, operands: Sequence[Tensor], index: int = 0) -> None:
        """f(a, b, c) at the addresses of `out`."""
        if not out.numel():
            return
        writes, *read = _tables(out, *[o.expand(out.shape) for o in operands])
        if _steps(writes) is None:  # computed apart, then put where it belongs
            apart = self.fresh(*out.shape)
            self.write(name, apart, operands, index)
            self._merge("put", out, apart)
            return
        read = [self._regular(table) for table in read]
        places = [_operand(table) for table in (writes, *read)]
        self._emit(line(name, writes.shape, *places, index=index), read, writes)

    def merge_at(self, name: str, places: Tensor, values: Tensor) -> None:
        """Put values at addresses; add them there, or keep the extreme, where some are the same."""
        self._computed.clear()
        self._merge(name, places, values)

    def _merge(self, name: str, places: Tensor, values: Tensor) -> None:
        """Rows of addresses that follow one another are moved together."""
        target, source = _tables(*torch.broadcast_tensors(places, values))
        if not target.size:
            return
        if not _has_rows(target):
            target, source = target.reshape(-1, 1), source.reshape(-1, 1)
        source = self._regular(source)
        at = self._list(target[:, 0])
        made = line(name, target.shape, NUMBERS, _operand(source), index=at)
        self._emit(made, [source, target], target)

    def merged(self, start: Tensor, moves: Sequence[tuple[str, Tensor, Tensor]]) -> Tensor | None:
        """The addresses after values were merged at positions of `start`, if nothing has to be
        computed: none meets another, and what is there is nothing yet."""
        found = start.reshape(-1).clone()
        for name, positions, values in moves:
            at = positions.reshape(-1)
            if len(at.unique()) < len(at):
                return None
            if name != "put" and not self.is_constant(found[at], MERGED[name]):
                return None
            found[at] = values.expand(positions.shape).reshape(-1)
        return found.reshape(start.shape)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A matrix product, or of as many as both have."""
        if a.dim() == 3:
            return torch.stack([self.product(x, y) for x, y in zip(a, b, strict=True)])
        (rows, inner), columns = a.shape, b.shape[1]
        out = self.fresh(rows, columns)
        if out.numel() and not inner:
            return self.number(0.0).expand(rows, columns)
        if out.numel():
            x, y = self._regular(a.numpy()), self._regular(b.numpy())
            places = [_operand(table) for table in (out.numpy(), x, y)]
            self._emit(
                line("product", (rows, columns), *places, (inner, 0, 0)), [x, y], out.numpy()
            )
        return out

    def aggregate(self, name: str, values: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
        """Sums or extremes over some axes, or over all if none is named."""
        if not values.dim():
            return values
        axes = {d % values.dim() for d in dims or range(values.dim())}
        rest = [d for d in range(values.dim()) if d not in axes]
        shape = [1 if d in axes else n for d, n in enumerate(values.shape)] if keep else []
        shape = shape or [values.shape[d] for d in rest]
        count = int(np.prod([values.shape[d] for d in rest], dtype=np.int64))
        if not values.numel():
            if name != "sum":
                raise NotRecordedError("an extreme of no values")
            return self.number(0.0).expand(shape)
        table = values.permute(*rest, *sorted(axes)).reshape(count, -1)
        if table.shape[1] == 1:
            return table.reshape(shape)
        out = self.fresh(count)
        groups = self._regular(table.numpy())
        made = line(name, groups.shape, (int(out[0]), 1, 0), _operand(groups))
        self._emit(made, [groups], out.numpy())
        return out.reshape(shape)

    def call(self, code: Code, memory: Tensor) -> None:
        """Code of another array, whose numbers are those at consecutive addresses."""
        self._computed.clear()
        addresses = memory.numpy()
        moved = shifted(code.lines.tolist(), int(addresses[0]), self._listed)
        self._list(code.index)
        self.instructions.append(TapeLines(moved, code.steps, [addresses], addresses))

    def code(self, first: int, outputs: Sequence[Tensor]) -> tuple[list[list[int]], np.ndarray]:
        """The lines from instruction `first` on that outputs need, and their steps. They end a
        sample: the next one computes all of its own."""
        self._computed.clear()
        needed = {int(b) for out in outputs for b in self._blocks(out.reshape(-1).numpy())}
        lasting = []
        for instruction in reversed(self.instructions[first:]):
            if needed.isdisjoint(self._blocks(instruction.writes)):
                continue
            for addresses in instruction.reads:
                needed.update(self._blocks(addresses))
            lasting.append(instruction)
        lines: list[list[int]] = []
        steps = [np.zeros((0, 3), np.int64)]
        for instruction in reversed(lasting):
            steps.append(instruction.steps + np.array([len(lines), 0, 0]))
            lines += instruction.lines
        return lines, np.concatenate(steps)

    def is_own(self, addresses: Tensor, first: int) -> bool:
        """Whether numbers lie one after another, where instructions from `first` on write them."""
        flat = addresses.reshape(-1).numpy()
        if (np.diff(flat) != 1).any():
            return False
        blocks = {
            block for made in self.instructions[first:] for block in self._blocks(made.writes)
        }
        return blocks.issuperset(self._blocks(flat))

    def known_constants(self) -> dict[int, float]:
        """Constants by address that nothing is written over."""
        written = {at for made in self.instructions for at in made.writes.reshape(-1).tolist()}
        return {at: value for at, value in self._known.items() if at not in written}

    def array(self, dtype: np.dtype) -> np.ndarray:
        """Numbers for all addresses, those of constants as they are."""
        found = np.zeros(self.size, dtype)
        for start, values in self.constants:
            found[start : start + len(values)] = values
        return found

    @property
    def index(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int64), *self._lists])

    def _emit(self, made: list[int], reads: Sequence[np.ndarray], writes: np.ndarray) -> None:
        assert len(made) == WIDTH
        steps = np.array([[0, 0, made[1]]], np.int64)
        self.instructions.append(TapeLines([made], steps, reads, writes))

    def _blocks(self, addresses: np.ndarray) -> list[int]:
        found = np.unique(addresses).tolist()
        return sorted({bisect_right(self.starts, address) for address in found})

    def _list(self, addresses: np.ndarray) -> int:
        self._lists.append(addresses)
        self._listed += len(addresses)
        return self._listed - len(addresses)

    def _regular(self, table: np.ndarray) -> np.ndarray:
        """Addresses with steps; those that have none are gathered."""
        if _steps(table) is not None:
            return table
        key = ("gather", table.shape, table.tobytes())
        if key in self._computed:
            return self._computed[key].numpy()
        self._computed[key] = self.fresh(*table.shape)
        out = self._computed[key].numpy()
        rows = table if _has_rows(table) else table.reshape(-1, 1)
        at = self._list(rows[:, 0])
        made = line("gather", rows.shape, _operand(out.reshape(rows.shape)), NUMBERS, index=at)
        self._emit(made, [table], out)
        return out


def _tables(*addresses: Tensor) -> list[np.ndarray]:
    """Addresses of one shape as rows and columns; in one row if all are lines."""
    flat = [each.reshape(1, -1).numpy() for each in addresses]
    sizes = [n for n in addresses[0].shape if n != 1]
    if len(sizes) < 2 or 0 in sizes or all(_steps(each) is not None for each in flat):
        return flat
    return [each.reshape(-1, sizes[-1]) for each in flat]


def _steps(table: np.ndarray) -> Operand | None:
    """Start, and steps down and to the right; None where addresses have none."""
    if not table.size:
        return NONE
    start = int(table[0, 0])
    down = int(table[1, 0]) - start if len(table) > 1 else 0
    right = int(table[0, 1]) - start if table.shape[1] > 1 else 1
    rows, columns = np.arange(len(table))[:, None], np.arange(table.shape[1])
    return (start, down, right) if (table == start + down * rows + right * columns).all() else None


def _operand(table: np.ndarray) -> Operand:
    found = _steps(table)
    assert found is not None
    return found


def _has_rows(table: np.ndarray) -> bool:
    """Whether the addresses of each row follow one another."""
    return table.shape[1] > 1 and bool((np.diff(table, axis=1) == 1).all())
