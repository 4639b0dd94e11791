"""The passes of block-sparse attention on a GPU for one case: their lists, ready to be launched.

All that follows from the case is decided once: grids, lists, numbers, and where results lie. A
result lies as its input does, so that transposing before and after moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.block_counts import tiling_of
from edgewise.kernels.attention.contract import Case, cached_by_case
from edgewise.kernels.attention.triton_launch import (
    Empty,
    Floats,
    Launch,
    Launches,
    Steps,
    on_device_of,
    readable,
)
from edgewise.kernels.attention.triton_score import functions
from edgewise.layouts.ragged import Ints, order_of, pointer, ranges
from edgewise.layouts.tiling import FULL, Intervals
from edgewise.scores.nodes import S

BLOCK = 64
# Warps, pipeline stages and registers of each pass, measured on an H200 with 64 features in bf16:
# so many registers that four (four, three) programs share a multiprocessor.
LAUNCH = {"forward": (4, 2, 128), "rows": (4, 2, 128), "columns": (4, 3, 168)}
ELSEWHERE = {"num_warps": 8, "num_stages": 1}  # where no engine copies tiles: fewest spills
LEAST = 32  # blocks that one program takes without splitting its row
TIMES = 2  # or as many times the mean
LONG = 1.5  # times the median: what is longer starts first
ONE = (1,)  # the stride of what is one array
GROWTH = 16  # layers are blocks of their own where lists grow by at most one in so many
Extra = tuple[Any, ...] | None


@lru_cache
def has_engine() -> bool:
    """From Hopper on a chip copies tiles by itself; desktop chips have other tensor cores."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] in (9, 10)


def width(features: int) -> int:
    """How many features kernels see: a power of two of at least 16."""
    return max(16, 1 << (features - 1).bit_length())


class OutputLayout:
    """Where (batch, heads, tokens, features) is written: heads, or tokens, first in memory."""

    def __init__(self, size: tuple[int, int, int, int], tokens_first: bool) -> None:
        _, heads, n, d = self.size = size
        self.units = (n * heads, 1, heads) if tokens_first else (heads * n, n, 1)
        self.stride = (*(x * d for x in self.units), 1)

    def like(self, x: Tensor) -> Tensor:
        return x.new_empty_strided(self.size, self.stride)


class Passes:
    """Of q (batch, heads, n, d), k (batch, key heads, m, d) and v (batch, key heads, m, dv).

    `shape` is (batch, heads, key heads), features are as many as `width` says; `tokens_first` says
    of q, k and v whether what is like them has tokens before heads in memory.
    """

    def __init__(
        self, case: Case, shape: tuple[int, int, int], tokens_first: tuple[bool, ...], device: str
    ) -> None:
        from edgewise.kernels.attention import triton_block_kernels as kernels
        from edgewise.kernels.attention import triton_parts_kernels as parts

        (batch, heads, keys), n, m = shape, case.n, case.m
        d, dv = width(case.d), width(case.dv)
        self.case, self.shape, self.exact = case, shape, (d, dv) == (case.d, case.dv)
        self.tiles = tile_lists(case.graph, n, m, BLOCK, device)
        rows, columns = self.tiles.rows, self.tiles.columns
        self.out = OutputLayout((batch, heads, n, dv), tokens_first[0])
        self.q = OutputLayout((batch, heads, n, d), tokens_first[0])
        self.k = OutputLayout((batch, keys, m, d), tokens_first[1])
        self.v = OutputLayout((batch, keys, m, dv), tokens_first[2])
        self.sums = (batch, heads, n)
        self.row_parts = (batch * heads * rows.slots, BLOCK)
        self.column_parts = (batch * keys * columns.slots, BLOCK)
        parts_of_rows = self.row_parts[0] * BLOCK
        self.forward_floats = Floats(batch * heads * n, parts_of_rows, parts_of_rows * dv)
        self.forward_size = (self.forward_floats.size,)
        self.apart = 8 * rows.slots > self.tiles.height  # much more than what is saved of it
        stats = 2 * batch * heads * self.tiles.height * BLOCK
        parts_of_columns = self.column_parts[0] * BLOCK
        self.backward_floats = Floats(
            stats, parts_of_rows * d, parts_of_columns * d, parts_of_columns * dv
        )
        both = (*self.k.units, *self.v.units)
        self._forward = self._pass("forward", kernels.forward, rows, self.out.units)
        self._rows = self._pass("rows", kernels.backward_rows, rows, self.q.units)
        self._columns = self._pass("columns", kernels.backward_columns, columns, both)
        self._merge = self._after(parts.merge, rows, n, self.out.units, DV=dv)
        self._add = self._after(parts.add_up, rows, n, self.q.units, D=d)
        self._add_both = self._after(parts.add_up_both, columns, m, both, D=d, DV=dv)
        self.run_forward = Launches(self.forward_steps, 3)
        self.run_backward = Launches(self._backward_steps, 5)

    def _pass(self, step: str, kernel: Any, lists: Lists, units: tuple[int, ...]) -> Launch:
        case, tiles, (batch, heads, keys) = self.case, self.tiles, self.shape
        many, count = batch * (keys if step == "columns" else heads), len(lists.items)
        order = (lists.first, count, many, heads, heads // keys, lists.slots)
        fixed = (lists.items, lists.work, tiles.layer_ptr, tiles.ends, case.scale, case.n, *order)
        none = (*(lists.items,) * (6 if step == "rows" else 3), 0, 0, 0, case.m, 0, 0, 1.0)
        options = {
            "BATCH": batch > 1,
            **_options(step, case, tiles, self.q.size[-1], self.v.size[-1]),
        }
        read = {"forward": 3, "rows": 5, "columns": 4}[step]
        return Launch(kernel, (count * many,), options, (*fixed, *units), none, read)

    def _after(
        self, kernel: Any, lists: Lists, n: int, units: tuple[int, ...], **sizes: int
    ) -> Launch:
        """What puts the parts of split rows (or columns) together."""
        batch, heads, keys = self.shape
        near = keys if lists is self.tiles.columns else heads
        fixed = (lists.split, lists.split_ptr, n, lists.slots, near, *units)
        options = {"BLOCK": BLOCK, **sizes, "num_warps": 4}
        return Launch(kernel, (len(lists.split), batch * near), options, fixed)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, terms: Extra) -> tuple[Tensor, Tensor]:
        """The output and the log-sum-exp, with terms as kernels take them."""
        if terms is None:
            out, sums = self.launch(readable(q), readable(k), readable(v))
        else:
            tensors = (readable(q), readable(k), readable(v), *self.results(_like(q)))
            _launched(self.forward_steps(*tensors), terms)
            out, sums = tensors[3:5]
        return out, self.forward_floats.part(sums, 0).view(self.sums)

    def launch(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and numbers that begin with the log-sum-exp, of tensors that the chip can
        read in blocks."""
        out, sums, scratch = self.results(_like(q))
        self.run_forward(q, k, v, out, sums, scratch)
        return out, sums

    def results(self, empty: Empty) -> tuple[Tensor, Tensor, Tensor]:
        """Memory for the output, the log-sum-exp, and parts of both, of rows that are split."""
        out = empty(self.out.size, self.out.stride, self.case.dtype)
        scratch = sums = empty(self.forward_size, ONE, torch.float32)
        if self.apart:
            sums = empty((self.forward_floats.at[1],), ONE, torch.float32)
        return out, sums, scratch

    def forward_steps(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, scratch: Tensor
    ) -> Steps:
        part = self.forward_floats.part
        lse, part_lse, part_out = part(sums, 0), part(scratch, 1), part(scratch, 2)
        tensors: tuple[Tensor, ...] = (q, k, v, out, lse, part_out, part_lse)
        steps = [(self._forward, tensors)]
        if self.row_parts[0]:
            steps.append((self._merge, (out, lse, part_out, part_lse)))
        return steps

    def backward(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        state: tuple[Tensor, Tensor, Tensor],
        terms: Extra = None,
        buffers: tuple[Tensor, ...] = (),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk and dv from the gradient of the output, the output and the log-sum-exp.

        `buffers` is for the gradients of terms.
        """
        q, k, v = (readable(x) for x in inputs)
        g, out, sums = readable(state[0]), readable(state[1]), state[2]
        dq, dk, dv = self.q.like(q), self.k.like(k), self.v.like(v)
        scratch = q.new_empty_strided((self.backward_floats.size,), ONE, dtype=torch.float32)
        tensors = (q, k, v, g, out, sums, dq, dk, dv, scratch)
        if terms is None:
            self.run_backward(*tensors)
        else:
            _launched(self._backward_steps(*tensors), (*buffers, *terms), terms)
        return dq, dk, dv

    def _backward_steps(
        self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, out: Tensor, lse: Tensor,
        dq: Tensor, dk: Tensor, dv: Tensor, scratch: Tensor,
    ) -> Steps:  # fmt: skip
        stats, *parts = (self.backward_floats.part(scratch, number) for number in range(4))
        stats = stats.view(torch.int64)
        steps = [
            (self._rows, (q, k, v, g, out, lse, stats, dq, parts[0])),
            (self._columns, (q, k, v, g, stats, dk, dv, *parts[1:])),
        ]
        if self.row_parts[0]:
            steps.append((self._add, (dq, parts[0])))
        if self.column_parts[0]:
            steps.append((self._add_both, (dk, dv, *parts[1:])))
        return steps


def _like(x: Tensor) -> Empty:
    return lambda size, stride, dtype: x.new_empty_strided(size, stride, dtype=dtype)


def _launched(steps: Steps, *terms: tuple[Any, ...]) -> None:
    """The first launches with terms, the others, which put parts together, without."""
    with on_device_of(steps[0][1][0]):
        for number, (launch, tensors) in enumerate(steps):
            launch(*tensors, terms=terms[number] if number < len(terms) else None)


@cached_by_case
def passes(
    case: Case, shape: tuple[int, int, int], tokens_first: tuple[bool, ...], device: str
) -> Passes:
    return Passes(case, shape, tokens_first, device)


def _options(step: str, case: Case, tiles: Tiles, d: int, dv: int) -> dict[str, Any]:
    warps, stages, registers = LAUNCH[step]
    single = case.dtype == torch.float32
    launch = {"num_warps": warps, "num_stages": 1 if single else stages, "maxnreg": registers}
    if single or max(d, dv) > 64 or case.written_out:
        launch = {"num_warps": warps, "num_stages": 1 if single else 2}
    if not has_engine():
        launch = ELSEWHERE
    code = functions(case.score)
    terms = {
        **{
            "VALUE": code.value,
            "SLOPE": code.slope,
            "SPREAD": code.spread if case.learns else None,
        },
        "SCORE": case.score != S,
        "BIAS": "bias" in case.features,
        "DROP": "dropout" in case.features,
    }
    shape = {"BLOCK": BLOCK, "D": d, "DV": dv, "ONE": tiles.one}
    return {**shape, **terms, "PRECISION": "ieee" if single else "tf32", **launch}


@dataclass(frozen=True, eq=False)
class Lists:
    """Per row (or column) its blocks: first full ones, then partial ones.

    Item t is the row items[t, 0] with the blocks work[items[t, 2] : items[t, 3]]; items[t, 1] is
    -1, or the place of its partial result. A word of `work` is a block, and above it its kind or
    FULL. `split` and `split_ptr` are the rows in several items, and where their slots begin. The
    `first` items are much longer than most: the last program to start must not be one of them.
    """

    items: Tensor
    work: Tensor
    split: Tensor
    split_ptr: Tensor
    slots: int
    first: int


@dataclass(frozen=True, eq=False)
class Tiles:
    """Row r of kind u has the keys low ≤ j < high of its block, for ends[l, r] = low + 2¹⁶·high
    and the layers layer_ptr[u] ≤ l < layer_ptr[u+1]; if `one`, that is layer u alone."""

    height: int  # in blocks
    rows: Lists
    columns: Lists
    layer_ptr: Tensor
    ends: Tensor
    one: bool


@cached
def tile_lists(graph: Pattern, n: int, m: int, block: int, device: str) -> Tiles:
    found = tiling_of(graph, n, m, block)
    row, index, kinds = found.listed()
    (height, width), looks = found.shape, found.kinds[1]
    layer_ptr, ends = _layers(looks)
    one = len(ends) == looks.kinds or not looks.kinds
    if not one and _added(kinds, layer_ptr) * GROWTH <= len(kinds):
        row, index, kinds = _in_layers(row, index, kinds, layer_ptr)
        layer_ptr, one = np.arange(len(ends) + 1, dtype=np.int32), True
    order = order_of(2 * row + (kinds != FULL), 2 * height)
    row, index, kinds = row[order], index[order], kinds[order]
    rows = _lists(row, index, kinds, height)
    order = order_of(2 * index + (kinds != FULL), 2 * width)
    columns = _lists(index[order], row[order], kinds[order], width)
    arrays = [layer_ptr, ends, *rows[0], *columns[0]]
    ptr, both, *moved = on_device(device, *arrays)
    lists = _moved(moved[:4], rows[1]), _moved(moved[4:], columns[1])
    return Tiles(height, *lists, ptr, both, one)


def _added(kinds: Ints, layer_ptr: np.ndarray) -> int:
    """By how many blocks lists grow if every layer of a block is a block of its own."""
    return int((np.diff(layer_ptr)[kinds[kinds != FULL]] - 1).sum())


def _in_layers(
    row: Ints, index: Ints, kinds: Ints, layer_ptr: np.ndarray
) -> tuple[Ints, Ints, Ints]:
    """Every layer of a block as a block: a softmax does not mind in how many parts it is summed."""
    partial = kinds != FULL
    count = np.where(partial, np.diff(layer_ptr)[kinds * partial], 1)
    layers = np.where(partial, layer_ptr[kinds * partial], FULL)
    again = np.repeat(np.arange(len(kinds)), count)
    nth = ranges(np.zeros(len(kinds), np.int64), count)
    return row[again], index[again], layers[again] + nth


def _lists(
    row: Ints, index: Ints, kinds: Ints, height: int
) -> tuple[list[np.ndarray], tuple[int, int]]:
    """The arrays of `Lists`, how many slots there are, and how many items come first."""
    ptr = pointer(np.bincount(row, minlength=height))
    table, split, split_ptr = items(ptr, LEAST, TIMES)
    work = np.stack([index, kinds], axis=1).astype(np.int32)
    size = table[:, 3] - table[:, 2]  # the longest first
    middle = (size[(len(size) - 1) // 2] + size[len(size) // 2]) / 2 if len(size) else 0
    first = int((size > LONG * middle).sum())
    return [table, work, split, split_ptr], (int(split_ptr[-1]), first)


def _moved(arrays: list[Tensor], counts: tuple[int, int]) -> Lists:
    table, work, split, split_ptr = arrays
    return Lists(table, work.view(torch.int64), split, split_ptr, *counts)


def _layers(looks: Intervals) -> tuple[np.ndarray, np.ndarray]:
    """The l-th interval of every row is in layer l of its kind."""
    block = looks.block
    count = np.bincount(looks.line, minlength=looks.kinds * block)
    nth = np.arange(len(looks.line)) - pointer(count)[looks.line]
    layer_ptr = pointer(count.reshape(-1, block).max(axis=1, initial=0))
    ends = np.zeros((max(int(layer_ptr[-1]), 1), block), np.int32)
    kind, row = np.divmod(looks.line, block)
    ends[layer_ptr[kind] + nth, row] = looks.low + (looks.high << 16)
    return layer_ptr.astype(np.int32), ends


def items(ptr: Ints, least: int, times: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows ptr[r] ≤ x < ptr[r+1], in pieces of at most max(least, times × the mean length): a
    table of (row, slot, first element, last + 1), the split rows and where their slots begin."""
    count, rows = np.diff(ptr), len(ptr) - 1
    most = max(least, times * int(ptr[-1]) // max(rows, 1))
    row, slot, low, high = np.arange(rows), np.full(rows, -1), ptr[:-1], ptr[1:]
    split = np.flatnonzero(count > most)
    parts = -(-count[split] // most)
    if len(split):
        every = np.ones(rows, np.int64)
        every[split] = parts
        row, size = np.repeat(row, every), -(-count // every)
        low = np.minimum(ranges(ptr[:-1], every, size), ptr[1:][row])
        high = np.minimum(low + size[row], ptr[1:][row])
        among = (every > 1)[row]
        slot = np.where(among, np.cumsum(among) - 1, -1)
    # The longest first, so that none is left over at the end; equal ones stay neighbours.
    longest = int((high - low).max(initial=0))
    order = order_of(longest - (high - low), longest + 1)
    return np.stack([row, slot, low, high], axis=1)[order], split, pointer(parts)


def on_device(device: str, *arrays: np.ndarray) -> list[Tensor]:
    """int32 arrays moved in one copy; each starts at a multiple of 16 bytes, as kernels assume."""
    sizes = [-(-x.size // 4) * 4 for x in arrays]
    packed, at = np.zeros(sum(sizes), np.int32), 0
    for x, size in zip(arrays, sizes, strict=True):
        packed[at : at + x.size] = x.ravel()
        at += size
    parts = torch.from_numpy(packed).to(device).split(sizes)
    return [part[: x.size].view(x.shape) for part, x in zip(parts, arrays, strict=True)]
