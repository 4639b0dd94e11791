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
from edgewise.kernels.attention.triton.launch import on_device_of, width
from edgewise.kernels.attention.triton.lists import on_device
from edgewise.kernels.attention.triton.passes import precision_of
from edgewise.kernels.attention.triton.score import Packed, functions
from edgewise.kernels.kernel_choices import no_triton
from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints
from edgewise.scores.nodes import S

if TYPE_CHECKING:
    from edgewise.kernels.attention.layout import Layout

name = "triton_decoding"
MOST_ROWS = 64  # of a tile: queries × heads that share keys
MOST_KEYS = 65535  # heads with keys of their own, over the batch: a grid has no more
MOST_LAYERS = 16  # runs of one of several queries
KEY = 30.0  # the time to read a key and its value, in pairs of a dense product
SHORTEST = 8  # keys of a run, on average
WAVES = 2  # programs for each multiprocessor


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
    """How the keys of one case are split, on one device."""

    def __init__(self, case: Case, device: str) -> None:
        found = runs_of(case.graph, case.n, case.m)
        self.case, self.runs, self.rows = case, len(found.cover), rows_of(case)
        self.tables = on_device(device, found.cover, found.layers.ravel())
        self.code = code_of(case, len(found.layers))
        blocks = found.blocks(block_of(case))
        each = -(-blocks // min(-(-WAVES * processors() // max(case.b, 1)), blocks))
        self.chunk, self.splits = each * block_of(case), -(-blocks // each)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
        """Of q (batch, heads, n, d), k and v (batch, key heads, m, ...): the output, and the
        log-sum-exp."""
        from edgewise.kernels.attention.triton import decoding_kernels as kernels

        case, (batch, heads, n, _), keys = self.case, q.shape, k.shape[1]
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        out = q.new_empty(batch, heads, n, case.dv)
        lse = q.new_empty(batch, heads, n, dtype=torch.float32)
        parts = batch * keys * self.splits * self.rows
        part_lse = torch.empty(parts, dtype=torch.float32, device=q.device)
        part_out = part_lse.new_empty(parts, width(case.dv))
        sizes = (n, case.m, keys, case.g, self.chunk, self.splits)
        strides = [step for x in (q, k, v) for step in x.stride()[:3]]
        of_v = {"ROWS": self.rows, "DV": case.dv, "WV": width(case.dv)}
        with on_device_of(q):
            kernels.split_keys[self.splits, batch * keys](
                q, k, v, part_out, part_lse, *self.tables, self.runs, case.scale,
                *sizes, *strides, *self._terms(q, terms), **self.code, **of_v,
            )  # fmt: skip
            kernels.merge_splits[batch * keys,](
                out, lse, part_out, part_lse, n, case.g, self.splits, **of_v
            )
        return out, lse

    def _terms(self, q: Tensor, terms: Terms) -> tuple[Any, ...]:
        tables, sizes, bias, strides = q, q, q, (0, 0, 0)
        if "score" in self.case.features:
            packed = Packed.of(terms.tables, q.device, self.case.score)
            tables, sizes = packed.tables, packed.sizes
        if terms.bias is not None:
            bias = terms.bias.contiguous()
            _, _, n, m = bias.shape
            strides = (n * m, m if n > 1 else 0, 1 if m > 1 else 0)
        return tables, sizes, bias, *strides


def code_of(case: Case, layers: int) -> dict[str, Any]:
    """How the kernel that splits keys is compiled."""
    large = rows_of(case) * width(max(case.d, case.dv)) > 64 * 128
    return {
        "VALUE": functions(case.score).value,
        "SCORE": case.score != S,
        "BIAS": "bias" in case.features,
        "LAYERS": layers,
        "BLOCK": block_of(case),
        "D": case.d,
        "WD": width(case.d),
        "PRECISION": precision_of(case),
        "num_warps": 8 if large or case.dtype == torch.float32 else 4,
        "num_stages": 1 if case.dtype == torch.float32 else 2 if large else 3,
    }


@cached_by_case
def decoding(case: Case, device: str) -> Decoding:
    return Decoding(case, device)


def bind(case: Case, layout: Layout) -> Direct | None:
    """A call without terms: a cache is read where it is, whatever its strides."""
    if case.features or len(layout.lead) not in (1, 2):
        return None
    return Direct(name, lambda *tensors: BoundDecoding(case, *tensors))


class BoundDecoding:
    """Its backward pass is that of the block kernels."""

    name = name

    def __init__(self, case: Case, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.case, self.run = case, decoding(case, str(q.device))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
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
