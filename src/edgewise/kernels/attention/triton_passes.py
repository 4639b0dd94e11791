"""The passes of block-sparse attention on a GPU for one case, ready to be launched.

All that follows from the case is decided once: grids, lists, numbers, and where results lie. A
result lies as its input does, so that transposing before and after moves nothing.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, cached_by_case
from edgewise.kernels.attention.triton_launch import Launch, at, readable
from edgewise.kernels.attention.triton_score import functions
from edgewise.kernels.attention.triton_tiles import Lists, Plan, plan
from edgewise.scores.nodes import S

BLOCK = 64
# Warps, pipeline stages and registers of each pass, measured on an H200 with 64 features in bf16:
# so many registers that four (four, three) programs share a processor.
LAUNCH = {"forward": (4, 2, 128), "rows": (4, 2, 128), "columns": (4, 3, 168)}
ELSEWHERE = {"num_warps": 8, "num_stages": 1}  # where no engine copies tiles: fewest spills
Extra = tuple[Any, ...] | None


@lru_cache
def has_engine() -> bool:
    """From Hopper on a chip copies tiles by itself; desktop chips have other tensor cores."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] in (9, 10)


def width(features: int) -> int:
    """How many features kernels see: a power of two of at least 16."""
    return max(16, 1 << (features - 1).bit_length())


class Room:
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
        self.tiles = plan(case.graph, n, m, BLOCK, device)
        rows, columns = self.tiles.rows, self.tiles.columns
        self.out = Room((batch, heads, n, dv), tokens_first[0])
        self.q = Room((batch, heads, n, d), tokens_first[0])
        self.k = Room((batch, keys, m, d), tokens_first[1])
        self.v = Room((batch, keys, m, dv), tokens_first[2])
        self.sums, self.stats = (batch, heads, n), (batch * heads, -(-n // BLOCK) * BLOCK)
        self.row_parts = (batch * heads * rows.slots, BLOCK)
        self.column_parts = (batch * keys * columns.slots, BLOCK)
        both = (*self.k.units, *self.v.units)
        self._forward = self._pass("forward", kernels.forward, rows, self.out.units)
        self._rows = self._pass("rows", kernels.backward_rows, rows, self.q.units)
        self._columns = self._pass("columns", kernels.backward_columns, columns, both)
        self._merge = self._after(parts.merge, rows, n, self.out.units, DV=dv)
        self._add = self._after(parts.add_up, rows, n, self.q.units, D=d)
        self._add_both = self._after(parts.add_up_both, columns, m, both, D=d, DV=dv)

    def _pass(self, step: str, kernel: Any, lists: Lists, units: tuple[int, ...]) -> Launch:
        case, tiles, (batch, heads, keys) = self.case, self.tiles, self.shape
        many, items = batch * (keys if step == "columns" else heads), len(lists.items)
        order = (lists.first, items, many, heads, heads // keys, lists.slots)
        fixed = (lists.items, lists.work, tiles.layer_ptr, tiles.ends, case.scale, case.n, *order)
        none = (*(lists.items,) * (6 if step == "rows" else 3), 0, 0, 0, case.m, 0, 0, 1.0)
        options = {
            "BATCH": batch > 1,
            **_options(step, case, tiles, self.q.size[-1], self.v.size[-1]),
        }
        read = {"forward": 3, "rows": 5, "columns": 4}[step]
        return Launch(kernel, (items * many,), options, (*fixed, *units), none, read)

    def _after(
        self, kernel: Any, lists: Lists, n: int, units: tuple[int, ...], **sizes: int
    ) -> Launch:
        """What puts the parts of split rows (or columns) together."""
        batch, heads, keys = self.shape
        near = keys if lists is self.tiles.columns else heads
        fixed = (lists.split, lists.split_ptr, n, lists.slots, near, *units)
        options = {"BLOCK": BLOCK, **sizes, "num_warps": 4}
        return Launch(kernel, (len(lists.split), batch * near), options, fixed)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Extra = None
    ) -> tuple[Tensor, Tensor]:
        """The output and the log-sum-exp; `terms` as kernels take them."""
        q, k, v = readable(q), readable(k), readable(v)
        out, lse = self.out.like(q), q.new_empty(self.sums, dtype=torch.float32)
        part, part_lse = out, lse
        if self.row_parts[0]:
            part = lse.new_empty((*self.row_parts, self.out.size[-1]))
            part_lse = lse.new_empty(self.row_parts)
        with at(q):
            self._forward(q, k, v, out, lse, part, part_lse, terms=terms)
            if self.row_parts[0]:
                self._merge(out, lse, part, part_lse)
        return out, lse

    def backward(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        state: tuple[Tensor, Tensor, Tensor],
        terms: Extra = None,
        room: tuple[Tensor, ...] = (),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk and dv from the gradient of the output, the output and the log-sum-exp.

        `room` is for the gradients of terms.
        """
        q, k, v = (readable(x) for x in inputs)
        g, out, lse = readable(state[0]), readable(state[1]), state[2]
        stats = q.new_empty(self.stats, dtype=torch.int64)
        dq, dk, dv = self.q.like(q), self.k.like(k), self.v.like(v)
        part, parts = dq, [dk, dv]
        if self.row_parts[0]:
            part = lse.new_empty((*self.row_parts, self.q.size[-1]))
        if self.column_parts[0]:
            parts = [lse.new_empty((*self.column_parts, x.size[-1])) for x in (self.k, self.v)]
        of_rows = None if terms is None else (*room, *terms)
        with at(q):
            self._rows(q, k, v, g, out, lse, stats, dq, part, terms=of_rows)
            self._columns(q, k, v, g, stats, dk, dv, *parts, terms=terms)
            if self.row_parts[0]:
                self._add(dq, part)
            if self.column_parts[0]:
                self._add_both(dk, dv, *parts)
        return dq, dk, dv


@cached_by_case
def passes(
    case: Case, shape: tuple[int, int, int], tokens_first: tuple[bool, ...], device: str
) -> Passes:
    return Passes(case, shape, tokens_first, device)


def _options(step: str, case: Case, tiles: Plan, d: int, dv: int) -> dict[str, Any]:
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
