"""The passes of block-sparse attention on a GPU for one case: their lists, ready to be launched.

All that follows from the case is decided once: grids, lists, numbers, and where results lie. A
result lies as its input does, so that transposing before and after moves nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import Case, cached_by_case
from edgewise.kernels.attention.triton.launch import (
    Empty,
    Floats,
    Launch,
    Launches,
    Steps,
    on_device_of,
    readable,
    width,
)
from edgewise.kernels.attention.triton.lists import Lists, tile_lists
from edgewise.kernels.attention.triton.score import functions
from edgewise.kernels.attention.triton.settings import block_of, launch_options, precision_of
from edgewise.scores.nodes import S

ONE = (1,)  # the stride of what is one array
READ = {"forward": 3, "rows": 5, "columns": 4}  # tensors that are read in tiles
Extra = tuple[Any, ...] | None
Shape = tuple[int, int, int]


class OutputLayout:
    """Where (batch, heads, tokens, features) is written: heads, or tokens, first in memory."""

    def __init__(self, size: tuple[int, int, int, int], tokens_first: bool) -> None:
        _, heads, n, d = self.size = size
        self.units = (n * heads, 1, heads) if tokens_first else (heads * n, n, 1)
        self.stride = (*(x * d for x in self.units), 1)


class BlockPasses:
    """Of q (batch, heads, n, d), k (batch, key heads, m, d) and v (batch, key heads, m, dv).

    `shape` is (batch, heads, key heads); `tokens_first` says of q, k and v whether what is like
    them has tokens before heads in memory.
    """

    def __init__(self, case: Case, shape: Shape, block: int, device: str) -> None:
        self.case, self.shape, self.block = case, shape, block
        self.tiles = tile_lists(case.graph, case.n, case.m, block, device)
        self.of_q = {"D": case.d, "WD": width(case.d)}
        self.of_v = {"DV": case.dv, "WV": width(case.dv)}
        batch, heads, keys = shape
        self.row_parts = batch * heads * self.tiles.rows.slots * block
        self.column_parts = batch * keys * self.tiles.columns.slots * block

    def _pass(self, step: str, kernel: Any, lists: Lists, units: tuple[int, ...]) -> Launch:
        case, tiles, (batch, heads, keys) = self.case, self.tiles, self.shape
        many, count = batch * (keys if step == "columns" else heads), len(lists.items)
        order = (lists.first, count, many, heads, heads // keys, lists.slots)
        fixed = (lists.items, lists.work, tiles.layer_ptr, tiles.ends, case.scale, case.n, *order)
        none = (*(lists.items,) * (6 if step == "rows" else 3), 0, 0, 0, case.m, 0, 0, 1.0)
        sizes = {"BLOCK": self.block, **self.of_q, **self.of_v, "BATCH": batch > 1}
        options = {**sizes, "FORM": tiles.form, **_options(step, case)}
        return Launch(kernel, (count * many,), options, (*fixed, *units), none, READ[step])

    def _after(
        self, kernel: Any, lists: Lists, n: int, units: tuple[int, ...], sizes: dict[str, int]
    ) -> Launch:
        """What puts the parts of split rows (or columns) together."""
        batch, heads, keys = self.shape
        near = keys if lists is self.tiles.columns else heads
        fixed = (lists.split, lists.split_ptr, n, lists.slots, near, *units)
        options = {"BLOCK": self.block, **sizes, "num_warps": 4}
        return Launch(kernel, (len(lists.split), batch * near), options, fixed)


class ForwardPass(BlockPasses):
    """One launch, and one that merges the parts of rows that are split."""

    def __init__(
        self, case: Case, shape: Shape, tokens_first: tuple[bool, ...], device: str
    ) -> None:
        from edgewise.kernels.attention.triton import block_kernels as kernels
        from edgewise.kernels.attention.triton import parts_kernels as parts

        super().__init__(case, shape, block_of(case, "forward"), device)
        rows, (batch, heads, _) = self.tiles.rows, shape
        self.out = OutputLayout((batch, heads, case.n, case.dv), tokens_first[0])
        self.sums = (batch, heads, case.n)
        self.floats = Floats(
            batch * heads * case.n, self.row_parts, self.row_parts * width(case.dv)
        )
        self.size = (self.floats.size,)
        self.apart = 8 * rows.slots > self.tiles.height  # much more than what is saved of it
        self._forward = self._pass("forward", kernels.forward, rows, self.out.units)
        self._merge = self._after(parts.merge, rows, case.n, self.out.units, self.of_v)
        self.run = Launches(self.steps, 3)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, terms: Extra) -> tuple[Tensor, Tensor]:
        """The output and the log-sum-exp, with terms as kernels take them."""
        if terms is None:
            out, sums = self.launch(readable(q), readable(k), readable(v))
        else:
            tensors = (readable(q), readable(k), readable(v), *self.results(like(q)))
            _launched(self.steps(*tensors), terms)
            out, sums = tensors[3:5]
        return out, self.floats.part(sums, 0).view(self.sums)

    def launch(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and numbers that begin with the log-sum-exp, of tensors that the chip can
        read in blocks."""
        out, sums, scratch = self.results(like(q))
        self.run(q, k, v, out, sums, scratch)
        return out, sums

    def results(self, empty: Empty) -> tuple[Tensor, Tensor, Tensor]:
        """Memory for the output, the log-sum-exp, and parts of both, of rows that are split."""
        out = empty(self.out.size, self.out.stride, self.case.dtype)
        scratch = sums = empty(self.size, ONE, torch.float32)
        if self.apart:
            sums = empty((self.floats.at[1],), ONE, torch.float32)
        return out, sums, scratch

    def steps(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, scratch: Tensor
    ) -> Steps:
        part = self.floats.part
        lse, part_lse, part_out = part(sums, 0), part(scratch, 1), part(scratch, 2)
        tensors: tuple[Tensor, ...] = (q, k, v, out, lse, part_out, part_lse)
        steps = [(self._forward, tensors)]
        if self.row_parts:
            steps.append((self._merge, (out, lse, part_out, part_lse)))
        return steps


class BackwardPass(BlockPasses):
    """A launch over rows, for dq, one over columns, for dk and dv, and those that add up parts."""

    def __init__(
        self, case: Case, shape: Shape, tokens_first: tuple[bool, ...], device: str
    ) -> None:
        from edgewise.kernels.attention.triton import block_kernels as kernels
        from edgewise.kernels.attention.triton import parts_kernels as parts

        super().__init__(case, shape, block_of(case, "rows"), device)
        (batch, heads, keys), n, m, d, dv = shape, case.n, case.m, case.d, case.dv
        rows, columns = self.tiles.rows, self.tiles.columns
        self.q = OutputLayout((batch, heads, n, d), tokens_first[0])
        self.k = OutputLayout((batch, keys, m, d), tokens_first[1])
        self.v = OutputLayout((batch, keys, m, dv), tokens_first[2])
        stats = 2 * batch * heads * self.tiles.height * self.block
        of_keys = (self.column_parts * width(d), self.column_parts * width(dv))
        self.floats = Floats(stats, self.row_parts * width(d), *of_keys)
        both = (*self.k.units, *self.v.units)
        self._rows = self._pass("rows", kernels.backward_rows, rows, self.q.units)
        self._columns = self._pass("columns", kernels.backward_columns, columns, both)
        self._add = self._after(parts.add_up, rows, n, self.q.units, self.of_q)
        self._add_both = self._after(
            parts.add_up_both, columns, m, both, {**self.of_q, **self.of_v}
        )
        self.run = Launches(self.steps, 5)

    def __call__(
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
        tensors = (q, k, v, g, out, sums, *self.results(like(q)))
        if terms is None:
            self.run(*tensors)
        else:
            _launched(self.steps(*tensors), (*buffers, *terms), terms)
        return tensors[6:9]

    def results(self, empty: Empty) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Memory for dq, dk and dv, and for numbers between launches."""
        dq, dk, dv = (empty(x.size, x.stride, self.case.dtype) for x in (self.q, self.k, self.v))
        return dq, dk, dv, empty((self.floats.size,), ONE, torch.float32)

    def steps(
        self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, out: Tensor, lse: Tensor,
        dq: Tensor, dk: Tensor, dv: Tensor, scratch: Tensor,
    ) -> Steps:  # fmt: skip
        stats, *parts = (self.floats.part(scratch, number) for number in range(4))
        stats = stats.view(torch.int64)
        steps = [
            (self._rows, (q, k, v, g, out, lse, stats, dq, parts[0])),
            (self._columns, (q, k, v, g, stats, dk, dv, *parts[1:])),
        ]
        if self.row_parts:
            steps.append((self._add, (dq, parts[0])))
        if self.column_parts:
            steps.append((self._add_both, (dk, dv, *parts[1:])))
        return steps


def like(x: Tensor) -> Empty:
    return lambda size, stride, dtype: x.new_empty_strided(size, stride, dtype=dtype)


def _launched(steps: Steps, *terms: tuple[Any, ...]) -> None:
    """The first launches with terms, the others, which put parts together, without."""
    with on_device_of(steps[0][1][0]):
        for number, (launch, tensors) in enumerate(steps):
            launch(*tensors, terms=terms[number] if number < len(terms) else None)


@cached_by_case
def forward_pass(
    case: Case, shape: Shape, tokens_first: tuple[bool, ...], device: str
) -> ForwardPass:
    return ForwardPass(case, shape, tokens_first, device)


@cached_by_case
def backward_pass(
    case: Case, shape: Shape, tokens_first: tuple[bool, ...], device: str
) -> BackwardPass:
    return BackwardPass(case, shape, tokens_first, device)


def _options(step: str, case: Case) -> dict[str, Any]:
    """How a pass is compiled."""
    code = functions(case.score)
    terms = {
        "VALUE": code.value,
        "SLOPE": code.slope,
        "SPREAD": code.spread if case.learns else None,
        "SCORE": case.score != S,
        "BIAS": "bias" in case.features,
        "DROP": "dropout" in case.features,
    }
    return {**terms, "PRECISION": precision_of(case, step), **launch_options(step, case)}
