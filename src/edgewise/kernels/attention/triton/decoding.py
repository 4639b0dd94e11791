"""One or few queries over a long cache on a GPU, with any pattern of runs of keys: the keys are
split among programs, and heads that share them are rows of one tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.autograd import Direct
from edgewise.kernels.attention.contract import (
    NO_TERMS,
    Case,
    Grads,
    Saved,
    Terms,
    cached_by_case,
)
from edgewise.kernels.attention.triton import blocks as triton_blocks
from edgewise.kernels.attention.triton.blocks import BoundPasses
from edgewise.kernels.attention.triton.launch import (
    Empty,
    Launch,
    Launches,
    Steps,
    empty_on,
    is_current,
    on_device_of,
    width,
)
from edgewise.kernels.attention.triton.lists import on_device
from edgewise.kernels.attention.triton.passes import ONE, like
from edgewise.kernels.attention.triton.score import Packed, functions
from edgewise.kernels.kernel_choices import no_triton
from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints
from edgewise.scores.nodes import S

if TYPE_CHECKING:
    from edgewise.kernels.attention.calls.layout import Layout

name = "triton_decoding"
MOST_ROWS = 64  # of a tile: queries × heads that share keys
MOST_KEYS = 65535  # heads with keys of their own, over the batch: a grid has no more
MOST_LAYERS = 16  # runs of one of several queries
KEY = 30.0  # the time to read a key and its value, in pairs of a dense product
SHORTEST = 8  # keys of a run, on average
WAVES = 2  # programs for each multiprocessor
RAGGED = 4  # times as many where caches have different lengths


def refuses(case: Case) -> str | None:
    if reason := no_triton(case.device):
        return reason
    if not case.work:
        return "there are no pairs"
    if case.n * case.g > MOST_ROWS:
        return f"{case.n * case.g:,} queries of heads that share keys are more than {MOST_ROWS}"
    if case.b > MOST_KEYS:
        return f"{case.b:,} heads of keys, over the batch, are more than {MOST_KEYS:,}"
    if case.graph.bitmap is not None:
        return "the keys of a query are not listed as runs"
    found = runs_of(case.graph, case.n, case.m)
    if len(found.layers) > MOST_LAYERS:
        return f"a query has keys in {len(found.layers):,} runs, more than {MOST_LAYERS}"
    if found.keys < SHORTEST * len(found.cover):
        return f"its keys are scattered: {found.keys:,} in {len(found.cover):,} runs"
    return case.lacks("bias", "score") or triton_blocks.refuses(case)


def cost(case: Case) -> float:
    slow = 1e3 if case.device == "cpu" else 1.0
    block, found = block_of(case), runs_of(case.graph, case.n, case.m)
    return slow * (KEY + case.g) * case.b * found.blocks(block) * block


def block_of(case: Case) -> int:
    """Keys that are read at a time. Products of float32 are sums of one thread each, for which the
    compiler runs out of registers in any larger block."""
    if case.dtype == torch.float32:
        return 16 if max(case.d, case.dv) > 64 else 32
    return 64


def rows_of(case: Case) -> int:
    """Of a tile: a power of two of at least 16."""
    return max(16, 1 << (case.n * case.g - 1).bit_length())


@dataclass(frozen=True, eq=False)
class DecodedKeys:
    """`cover` has (first, count, step) of progressions that hold the keys of all queries; `layers`
    (layers, 3, n) the first, the end and the step of the l-th progression of each of several."""

    cover: Ints
    layers: Ints

    @cached_property
    def keys(self) -> int:
        return int(self.cover[:, 1].sum())

    def blocks(self, block: int) -> int:
        """Of all progressions, each filled up."""
        return int((-(-self.cover[:, 1] // block)).sum())


@cached
def runs_of(graph: Pattern, n: int, m: int) -> DecodedKeys:
    rows = graph.rows(n, m).expand()
    if n == 1:
        return DecodedKeys(_cover(rows), np.zeros((0, 3, 1), np.int64))
    count = np.diff(rows.ptr)
    owner, most = np.repeat(np.arange(n), count), max(int(count.max(initial=0)), 1)
    layers = np.zeros((1 << (most - 1).bit_length(), 3, n), np.int64)  # few variants are compiled
    layers[:, 2] = 1
    nth = np.arange(len(owner)) - rows.ptr[:-1][owner]
    for part, values in enumerate((rows.start, rows.stop, rows.step)):
        layers[nth, part, owner] = values
    return DecodedKeys(_cover(rows), layers)


def _cover(rows: Rows) -> Ints:
    """Of one query its own progressions; of several, intervals that hold all of theirs."""
    if rows.n == 1:
        return np.stack([rows.start, rows.size, rows.step], axis=1)
    order = np.argsort(rows.start, kind="stable")
    start, stop = rows.start[order], np.maximum.accumulate(rows.stop[order])
    begins = np.append(True, start[1:] > stop[:-1]) if len(start) else np.zeros(0, bool)
    low, high = start[begins], stop[np.append(begins[1:], True)] if len(start) else stop
    return np.stack([low, high - low, np.ones_like(low)], axis=1)


@lru_cache
def processors() -> int:
    """Multiprocessors of the GPU; of the interpreter, so few that keys are split all the same."""
    if not torch.cuda.is_available():
        return 4
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


class Decoding:
    """How the keys of one case are split, on one device; of caches of different lengths into more
    parts, since some have nothing to read."""

    def __init__(self, case: Case, device: str, ragged: bool = False) -> None:
        found = runs_of(case.graph, case.n, case.m)
        self.case, self.runs, self.rows = case, len(found.cover), rows_of(case)
        self.tables = on_device(device, found.cover, found.layers.ravel())
        self.code = code_of(case, len(found.layers), ragged)
        blocks, programs = found.blocks(block_of(case)), WAVES * processors()
        programs = programs * RAGGED if ragged else programs
        each = -(-blocks // min(-(-programs // max(case.b, 1)), blocks))
        self.chunk, self.splits = each * block_of(case), -(-blocks // each)
        self.made: dict[tuple[Any, ...], SplitLaunches] = {}

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Terms, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Of q (batch, heads, n, d), k and v (batch, key heads, m, ...): the output, and the
        log-sum-exp."""
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        launches = self.launches(q, k, v)
        results = launches.results(like(q))
        with on_device_of(q):
            steps = launches.steps(q, k, v, *results, *(() if lengths is None else (lengths,)))
            (split, of_split), (merge, of_merge) = steps
            split(*of_split, terms=self._terms(q, terms))
            merge(*of_merge)
        return results[0], results[1]

    def launches(self, q: Tensor, k: Tensor, v: Tensor) -> SplitLaunches:
        """For tensors of these shapes and strides."""
        key = (q.shape, k.shape[1], q.stride(), k.stride(), v.stride())
        if key not in self.made:
            self.made[key] = SplitLaunches(self, q, k, v)
        return self.made[key]

    def _terms(self, q: Tensor, terms: Terms) -> tuple[Any, ...] | None:
        if not self.case.features:
            return None
        tables, sizes, bias, strides = q, q, q, (0, 0, 0)
        if "score" in self.case.features:
            packed = Packed.of(terms.tables, q.device, self.case.score)
            tables, sizes = packed.tables, packed.sizes
        if terms.bias is not None:
            bias = terms.bias.contiguous()
            _, _, n, m = bias.shape
            strides = (n * m, m if n > 1 else 0, 1 if m > 1 else 0)
        return tables, sizes, bias, *strides


class SplitLaunches:
    """Both launches for tensors of some shapes and strides: all but their addresses is decided."""

    def __init__(self, split: Decoding, q: Tensor, k: Tensor, v: Tensor) -> None:
        from edgewise.kernels.attention.triton import decoding_kernels as kernels

        case, (batch, heads, n, _), keys = split.case, q.shape, k.shape[1]
        wide = width(case.dv)
        of_v = {"ROWS": split.rows, "DV": case.dv, "WV": wide}
        sizes = (n, case.m, keys, case.g, split.chunk, split.splits)
        strides = [step for x in (q, k, v) for step in x.stride()[:3]]
        fixed = (*split.tables, split.runs, case.scale, *sizes, *strides)
        none = (*split.tables, split.tables[0], 0, 0, 0)
        grid, options = (split.splits, batch * keys), {**split.code, **of_v}
        self.split = Launch(kernels.split_keys, grid, options, fixed, none)
        rest = (n, case.g, split.splits)
        self.merge = Launch(kernels.merge_splits, (batch * keys,), of_v, rest)
        self.size, self.sums, self.dtype = (batch, heads, n, case.dv), (batch, heads, n), case.dtype
        self.strides = (heads * n * case.dv, n * case.dv, case.dv, 1), (heads * n, n, 1)
        parts = batch * keys * split.splits * split.rows
        self.outputs = parts * wide
        self.floats = (self.outputs + parts,)

    def results(self, empty: Empty) -> tuple[Tensor, Tensor, Tensor]:
        """Memory for the output, the log-sum-exp, and both of the parts."""
        of_out, of_sums = self.strides
        out = empty(self.size, of_out, self.dtype)
        lse = empty(self.sums, of_sums, torch.float32)
        return out, lse, empty(self.floats, ONE, torch.float32)

    def steps(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, parts: Tensor,
        lengths: Tensor | None = None,
    ) -> Steps:  # fmt: skip
        part_out, part_lse = parts[: self.outputs], parts[self.outputs :]
        ragged = part_lse if lengths is None else lengths
        merged = (out, lse, part_out, part_lse)
        return [(self.split, (q, k, v, part_out, part_lse, ragged)), (self.merge, merged)]


def code_of(case: Case, layers: int, ragged: bool = False) -> dict[str, Any]:
    """How the kernel that splits keys is compiled."""
    large = rows_of(case) * width(max(case.d, case.dv)) > 64 * 128
    return {
        "VALUE": functions(case.score).value,
        "SCORE": case.score != S,
        "BIAS": "bias" in case.features,
        "RAGGED": ragged,
        "LAYERS": layers,
        "BLOCK": block_of(case),
        "D": case.d,
        "WD": width(case.d),
        "PRECISION": "ieee" if case.dtype == torch.float32 and not case.tf32 else "tf32",
        "num_warps": 8 if large or case.dtype == torch.float32 else 4,
        "num_stages": 1 if case.dtype == torch.float32 else 2 if large else 3,
    }


@cached_by_case
def decoding(case: Case, device: str, ragged: bool = False) -> Decoding:
    return Decoding(case, device, ragged)


def bind(case: Case, layout: Layout) -> Direct | None:
    """A call without terms: a cache is read where it is, whatever its strides."""
    if case.features or len(layout.lead) not in (1, 2):
        return None
    return Direct(name, lambda *tensors: BoundDecoding(case, *tensors))


class BoundDecoding:
    """Tensors of some strides; `as_is` if they are read where they are. Its backward pass is that
    of the block kernels."""

    name = name

    def __init__(self, case: Case, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.case, self.run = case, decoding(case, str(q.device))
        self.device, self.empty = q.get_device(), empty_on(q.get_device())
        self.as_is = q.ndim == 4 and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        if self.as_is:
            self.made = self.run.launches(q, k, v)
            self.launches = Launches(self.made.steps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.as_is:
            if not is_current(self.device):
                with torch.cuda.device(self.device):
                    return self.forward(q, k, v)
            results = self.made.results(self.empty)
            key = tuple([x.data_ptr() for x in (q, k, v, *results)])
            self.launches.at(self.device, key, q, k, v, *results)
            return results[:2]
        if q.ndim == 4:
            return self.run(q, k, v, NO_TERMS)
        out, lse = self.run(q[None], k[None], v[None], NO_TERMS)
        return out[0], lse[0]

    def backward(self, saved: tuple[Tensor, ...], dout: Tensor) -> tuple[Tensor, ...]:
        q, k, v, out, lse = saved
        bound = BoundPasses(self.case, q, k, v)
        return bound.backward((q, k, v, out, lse.reshape(-1)), dout)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    return decoding(case, str(q.device))(q, k[:, None], v[:, None], terms)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    return triton_blocks.backward(case, saved, dout)
