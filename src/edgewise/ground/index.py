"""Keys: constants as integers, and which atoms of a relation hold: a grid, or explicit keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.language.nodes import Constant
from edgewise.layouts.recorded import integer, one_call

MANY = 2048  # codes, from which on a radix sort is faster
TABLE = 2  # entries of a table for each look-up; where it would have more, a search is faster
WIDEST = 1 << 62  # keys that one integer tells apart
STRINGS = 1 << 40  # integers stay below, strings from here on, so that keys sort as they should


@dataclass(frozen=True)
class Grid:
    """All tuples of integers below `sizes`, in row-major order.

    >>> Grid((2, 2)).column(1)
    tensor([0, 1, 0, 1])
    """

    sizes: tuple[int, ...]

    @property
    def arity(self) -> int:
        return len(self.sizes)

    @property
    def rows(self) -> int:
        return math.prod(self.sizes)

    def column(self, position: int) -> Tensor:
        inner = math.prod(self.sizes[position + 1 :])
        outer = math.prod(self.sizes[:position])
        axis = torch.arange(self.sizes[position])
        axis = axis if inner == 1 else axis.repeat_interleave(inner)
        return axis if outer == 1 else axis.repeat(outer)

    @property
    def keys(self) -> Tensor:
        """(rows, arity)."""
        columns = [self.column(p) for p in range(self.arity)]
        return torch.stack(columns, 1) if columns else torch.zeros(1, 0, dtype=torch.int64)

    def length(self, position: int) -> int:
        return self.sizes[position]

    @property
    def spans(self) -> tuple[int, ...]:
        return self.sizes


@dataclass(frozen=True, eq=False)
class Keys:
    """Explicit keys (rows, arity) without repetition, sorted but for the list of a domain."""

    keys: Tensor

    @property
    def arity(self) -> int:
        return self.keys.shape[1]

    @property
    def rows(self) -> int:
        return self.keys.shape[0]

    def column(self, position: int) -> Tensor:
        return self.keys[:, position]

    def take(self, rows: Tensor) -> Keys:
        """Some of the rows, column by column, as later reads are.

        >>> Keys(torch.tensor([[1, 5], [2, 0]])).take(torch.tensor([1])).keys
        tensor([[2, 0]])
        """
        if not self.arity:
            return Keys(self.keys[rows])
        return Keys(torch.stack([column.index_select(0, rows) for column in self.keys.unbind(1)]).T)

    def length(self, position: int) -> int:
        """One more than the largest integer of a column."""
        low, high = self.ends[position] if self.rows else (0, -1)
        if high < STRINGS or low >= STRINGS:
            return max(high + 1, 0) if high < STRINGS else 0
        column = self.keys[:, position]
        integers = column[column < STRINGS]
        return max(int(integers.max()) + 1, 0) if integers.numel() else 0

    @property
    def spans(self) -> tuple[int, ...]:
        """For each column the number of integers from its least to its largest key."""
        return tuple(high - low + 1 for low, high in self.ends) or (0,) * self.arity

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """The least and the largest key of each column; empty without rows."""
        if not self.rows or not self.arity:
            return []
        return ends_of([self.keys.unbind(1)])

    @cached_property
    def packed(self) -> tuple[Tensor, Tensor | None]:
        """Keys as sorted integers, and their order, None where they are sorted; there are some."""
        columns = self.keys.unbind(1)
        wide = math.prod(self.spans) >= WIDEST
        codes = ranked([columns])[0] if wide else encode(columns, self.ends)
        if ascending(codes):
            return codes, None
        order = stable_order(codes, WIDEST if wide else math.prod(self.spans))
        return codes.index_select(0, order), order

    def or_grid(self) -> Index:
        """The same keys as a grid, if they are one."""
        sizes = tuple(high + 1 for _, high in self.ends)
        full = self.rows > 0 and math.prod(sizes) == self.rows
        return Grid(sizes) if full and all(low >= 0 for low, _ in self.ends) else self


Index = Grid | Keys


def same_keys(one: Index, other: Index) -> bool:
    """Whether the same atoms hold, in the same order.

    >>> same_keys(Keys(torch.tensor([[1], [4]])), Keys(torch.tensor([[1], [4]])))
    True
    """
    if isinstance(one, Keys) and isinstance(other, Keys):
        return one is other or torch.equal(one.keys, other.keys)
    return one == other


def index_of(keys: Tensor) -> Index:
    """Sorted, distinct keys as an index: a grid where they are one.

    >>> index_of(torch.tensor([[0], [1], [2]]))
    Grid(sizes=(3,))
    """
    return Keys(keys).or_grid()


def offsets_of(indices: Mapping[str, Index]) -> tuple[dict[str, int], int]:
    """Where the rows of each relation begin if all are numbered together, and how many there are.

    >>> offsets_of({"a": Grid((2,)), "b": Grid((3,))})
    ({'a': 0, 'b': 2}, 5)
    """
    offsets, total = {}, 0
    for relation, index in indices.items():
        offsets[relation] = total
        total += index.rows
    return offsets, total


def run_starts(ordered: Tensor) -> Tensor:
    """Which elements differ from the one before.

    >>> run_starts(torch.tensor([3, 3, 5])).tolist()
    [True, False, True]
    """
    found = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=found[1:])
    return found


def distinct_rows(keys: Tensor) -> Tensor:
    """The different rows of a table of keys, in key order.

    >>> distinct_rows(torch.tensor([[2, 0], [1, 5], [2, 0]])).tolist()
    [[1, 5], [2, 0]]
    """
    if not keys.shape[1] or not keys.shape[0]:
        return keys[:1]
    ordered, order = Keys(keys).packed
    return keys if order is None else Keys(keys).take(order[run_starts(ordered)]).keys


def union_of(old: Index, keys: Tensor) -> tuple[Index, Tensor]:
    """The atoms of an index and of distinct keys, and the row of each: those of the index first.

    >>> union_of(Keys(torch.tensor([[1], [4]])), torch.tensor([[0], [4]]))[1].tolist()
    [1, 2, 0, 2]
    """
    both = torch.cat([old.keys, keys])
    if not both.shape[1] or not len(both):
        return index_of(both[:1]), torch.zeros(len(both), dtype=torch.int64)
    ordered, order = pack(both.unbind(1))[0].sort()
    fresh = run_starts(ordered)
    number = fresh.cumsum(0) - 1
    return index_of(both[order[fresh]]), torch.empty_like(order).index_copy_(0, order, number)


@one_call
def stable_order(codes: Tensor, size: int) -> Tensor:
    """The stable order of codes below `size`.

    >>> stable_order(torch.tensor([4, 2, 4]), 5).tolist()
    [1, 0, 2]
    """
    if len(codes) < MANY or size > 1 << 48:
        return codes.sort(stable=True).indices
    values, order = codes.numpy(), None
    for shift in range(0, max(size - 1, 1).bit_length(), 16):  # radix sort of 16 bits at a time
        digits = ((values if order is None else values[order]) >> shift).astype(np.uint16)
        least = np.argsort(digits, kind="stable")
        order = least if order is None else order[least]
    return torch.from_numpy(order)


@one_call
def ascending(codes: Tensor) -> bool:
    """True if each code is larger than the one before: sorted, and none twice."""
    return bool((codes[1:] > codes[:-1]).all())


def pack(*tables: Sequence[Tensor]) -> list[Tensor]:
    """Columns of several tables as one integer per row, ordered as the rows are.

    Equal rows get equal integers across the tables.
    """
    if not tables[0]:
        return [torch.zeros(0, dtype=torch.int64) for _ in tables]
    ends = ends_of(tables)
    if math.prod(high - low + 1 for low, high in ends) >= WIDEST:
        return ranked(tables)
    return [encode(table, ends) for table in tables]


def ends_of(tables: Sequence[Sequence[Tensor]]) -> list[tuple[int, int]]:
    """The least and the largest key of each column, over several tables."""
    ends = []
    for columns in zip(*tables, strict=True):
        found = [tuple(map(integer, column.aminmax())) for column in columns if column.numel()]
        ends.append((min((e[0] for e in found), default=0), max((e[1] for e in found), default=0)))
    return ends


@one_call
def encode(columns: Sequence[Tensor], ends: Sequence[tuple[int, int]]) -> Tensor:
    """One integer per row, in the order of rows; `ends` are the least and largest of each column.

    >>> encode([torch.tensor([1, 2]), torch.tensor([5, 7])], [(1, 2), (5, 9)]).tolist()
    [0, 7]
    """
    code = columns[0] - ends[0][0]
    for column, (low, high) in zip(columns[1:], ends[1:], strict=True):
        code.mul_(high - low + 1).add_(column)
        if low:
            code.sub_(low)
    return code


def ranked(tables: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """As `pack`, by sorting: where keys are too far apart for one integer."""
    columns = [torch.cat(parts) for parts in zip(*tables, strict=True)]
    fresh, order = starts_of(columns), None
    if not _in_order(columns):
        for codes in reversed(_narrow(columns)):  # stable sorts, the last key first
            mine = codes if order is None else codes.index_select(0, order)
            step = mine.sort(stable=True).indices
            order = step if order is None else order.index_select(0, step)
        assert order is not None
        fresh = starts_of([column.index_select(0, order) for column in columns])
    ranks = fresh.cumsum(0) - 1
    if order is not None:
        ranks = torch.empty_like(ranks).index_copy_(0, order, ranks)
    return list(ranks.split([len(table[0]) for table in tables]))


def _narrow(columns: Sequence[Tensor]) -> list[Tensor]:
    """Columns as as few integers per row as tell them apart, in the same order."""
    found: list[Tensor] = []
    size = WIDEST
    for column, (low, high) in zip(columns, ends_of([columns]), strict=True):
        span = high - low + 1
        if size * span >= WIDEST:
            found.append(column - low)
            size = span
        else:
            found[-1] = found[-1] * span + (column - low)
            size *= span
    return found


def _in_order(columns: Sequence[Tensor]) -> bool:
    """True if no row comes before the one above it."""
    equal = torch.ones(max(len(columns[0]) - 1, 0), dtype=torch.bool)
    for column in columns:
        if bool((equal & (column[1:] < column[:-1])).any()):
            return False
        equal &= column[1:] == column[:-1]
    return True


def starts_of(columns: Sequence[Tensor]) -> Tensor:
    """Which rows differ from the one before.

    >>> starts_of([torch.tensor([3, 3, 3]), torch.tensor([1, 1, 2])]).tolist()
    [True, False, True]
    """
    found = run_starts(columns[0])
    for column in columns[1:]:
        found |= run_starts(column)
    return found


def rows_of(index: Index, keys: Tensor) -> Tensor:
    """The row of each key (rows, arity); -1 where it does not hold."""
    if not keys.shape[1]:
        return torch.full((len(keys),), 0 if index.rows else -1)
    return locate(index, list(keys.unbind(1)))


def locate(index: Index, columns: Sequence[Tensor]) -> Tensor:
    """The row of each key; -1 where it does not hold."""
    if isinstance(index, Grid):
        return _places(index.sizes, columns)
    if not index.rows:
        return torch.full_like(columns[0], -1) if columns else torch.tensor([-1])
    order: Tensor | None
    size = math.prod(index.spans)
    if size >= WIDEST:
        have, want = pack(index.keys.unbind(1), columns)
        have, order = have.sort()
    else:
        have, order = index.packed
        inside = torch.ones_like(columns[0], dtype=torch.bool)
        for column, (low, high) in zip(columns, index.ends, strict=True):
            inside &= (column >= low) & (column <= high)
        want = torch.where(inside, encode(columns, index.ends), -1)
    if size <= TABLE * want.shape[0]:
        return _looked_up(have, order, want, size)
    place = torch.searchsorted(have, want).clamp(max=index.rows - 1)
    return torch.where(have[place] == want, place if order is None else order[place], -1)


def _places(sizes: Sequence[int], columns: Sequence[Tensor]) -> Tensor:
    """The row of each key on a grid; -1 where it is not on it."""
    row = columns[0].clone() if columns else torch.zeros(1, dtype=torch.int64)
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        row.mul_(size).add_(column)
    outside = None
    for column, size in zip(columns, sizes, strict=True):
        if not column.shape[0]:
            continue
        least, most = column.aminmax()
        if integer(least) < 0 or integer(most) >= size:
            here = (column < 0) | (column >= size)
            outside = here if outside is None else outside | here
    return row if outside is None else row.masked_fill_(outside, -1)


def _looked_up(have: Tensor, order: Tensor | None, want: Tensor, size: int) -> Tensor:
    """The rows by a table of all codes, the last entry for none: where many are wanted."""
    row = torch.full((size + 1,), -1)
    row[have] = torch.arange(have.shape[0]) if order is None else order
    return row[want]


class KeyOutOfRange(EdgewiseError):
    """Compiled programs keep keys in 64 bits, and an axis has no place for a negative key."""

    code = "key-out-of-range"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).ground(facts=[R.a(1 << 50)[1.0]])"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).ground(facts=[R.a(1 << 30)[1.0]])"


class Constants:
    """Constants as integers: a number is itself, a string its rank among all strings, far above.

    >>> names = Constants(["b", "a", 7])
    >>> [names.code(c) - STRINGS for c in ("a", "b")], names.code(7)
    ([0, 1], 7)
    """

    def __init__(self, constants: Iterable[Constant] = ()) -> None:
        self.strings = sorted({c for c in constants if isinstance(c, str)})
        self.ranks = {string: rank for rank, string in enumerate(self.strings)}

    def code(self, constant: Constant) -> int:
        if isinstance(constant, str):
            return STRINGS + self.ranks[constant]
        if not -STRINGS < constant < STRINGS:
            raise KeyOutOfRange(
                f"the key {constant} does not fit", caller(), "use keys below 2^40, or a string"
            )
        return constant

    def knows(self, constant: Constant) -> bool:
        return not isinstance(constant, str) or constant in self.ranks

    def constant(self, code: int) -> Constant:
        return self.strings[code - STRINGS] if code >= STRINGS else code

    def keys(self, keys: Iterable[tuple[Constant, ...]], arity: int) -> Tensor:
        rows, code = list(keys), self.code
        codes = [code(c) for key in rows for c in key]
        return torch.tensor(codes, dtype=torch.int64).reshape(len(rows), arity)
