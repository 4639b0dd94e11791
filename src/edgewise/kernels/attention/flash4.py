"""FlashAttention 4 on a Hopper GPU: all pairs between two diagonals, as full, causal and windows.

Its functions take (batch, tokens, heads, features) of any strides, and count diagonals from the
last query and the last key. Its package, of the extra `flash`, is loaded when it is first chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import residue_groups
from edgewise.kernels.attention.autograd import Direct
from edgewise.kernels.attention.contract import (
    Case,
    Grads,
    Saved,
    Terms,
    cached_by_case,
    pieces_of,
)
from edgewise.kernels.attention.triton.launch import is_current
from edgewise.kernels.kernel_choices import no_flash4
from edgewise.scores import softcap
from edgewise.scores.nodes import Call, Node, Number

if TYPE_CHECKING:
    from edgewise.kernels.attention.calls.layout import Layout

name = "flash4"
# Features of q and v that bench/flash_gpu_checks.py finds right: gradients are wrong for 80, and 64
# with values of 128 do not launch.
SIZES = {(d, d) for d in (32, 64, 96, 128, 192, 256)} | {(192, 128)}
MOST_HEADS = 65535  # of one launch, over the batch
PIECES = 8  # of the normal form; a band has at most 4
# Times in pairs of a dense product, fitted to cells of bench/grid_gpu.py on one H200: full and
# causal 16k of 64 features take 0.88 and 0.83 of PyTorch's time, causal 8 × 4,096 and 8 × 1,000
# 0.96 and 1.42; windows 1.18 to 1.38 of triton_blocks' at 64 features, 0.77 at 96, 0.48 at 256.
PAIR = 0.85
WINDOW_PAIR = 0.75  # between two diagonals
NARROW_PAIR = 1.1  # the same with up to 64 features
NARROW = 64
SOFTCAP = 1.15  # times as long
BORDER = 160  # keys that tiles add to a row at a diagonal: half of 192 × 128
ROWS = 132 * 128  # a tile for each multiprocessor: fewer take as long
CALL = 2e7

Window = tuple[int | None, int | None]


def refuses(case: Case) -> str | None:
    if reason := no_flash4(case.device):
        return reason
    if not case.work:
        return "there are no pairs"
    if case.dtype.itemsize != 2:
        return "it computes in float16 and bfloat16 only"
    if (case.d, case.dv) not in SIZES:
        return f"heads of {case.d} features, with values of {case.dv}, were not found right"
    if case.b * case.g > MOST_HEADS:
        return f"{case.b * case.g:,} heads, over the batch, are more than {MOST_HEADS:,}"
    if reason := case.lacks("score"):
        return reason
    if "score" in case.features and _most(case.score) is None:
        return "of scores it takes `softcap` alone"
    between = diagonals(case.graph, case.n, case.m)
    if between is None:
        return "the graph is not all pairs between two diagonals, with keys for all queries"
    if min(0 if x is None else x for x in _window(case)) < 0:
        return "the last query does not attend to the last key"
    return None


def cost(case: Case) -> float:
    left, right = _window(case)
    borders = (left is not None) + (right is not None)
    pair = PAIR
    if borders == 2:
        pair = NARROW_PAIR if max(case.d, case.dv) <= NARROW else WINDOW_PAIR
    if "score" in case.features:
        pair *= SOFTCAP
    keys = min(case.pairs / case.n + BORDER * borders, case.m)
    return pair * max(case.b * case.g * case.n, ROWS) * keys + CALL


@cached
def diagonals(graph: Pattern, n: int, m: int) -> Window | None:
    """`low` and `high` such that query i attends to all keys i + low ≤ j ≤ i + high, and to one at
    least; None for one that cuts nothing off.

    >>> from edgewise.graphs import causal, strided, window
    >>> diagonals(window(2), 9, 9), diagonals(causal(), 9, 9), diagonals(strided(2), 9, 9)
    ((-2, 2), (None, 0), None)
    """
    if residue_groups(graph, n, m) is not None or graph.bitmap is not None:
        return None
    if pieces_of(graph, n, m) > PIECES:
        return None
    rows = graph.rows(n, m)
    if (np.diff(rows.ptr) != 1).any() or (rows.step != 1).any():
        return None
    part = rows.trapezoids()
    down = part.bottom - 1 - part.top  # ends of rows are straight lines: two rows tell all
    i = np.concatenate([part.top, part.bottom - 1])
    first = np.concatenate([part.start, part.start + part.dstart * down])
    last = np.concatenate([part.stop, part.stop + part.dstop * down]) - 1
    low, high = (first - i)[first > 0], (last - i)[last < m - 1]
    if low.size and (first != np.maximum(i + low[0], 0)).any():
        return None
    if high.size and (last != np.minimum(i + high[0], m - 1)).any():
        return None
    return int(low[0]) if low.size else None, int(high[0]) if high.size else None


def _window(case: Case) -> Window:
    """How many keys it sees to the left and to the right of the diagonal that ends at the last
    query and the last key; None for all."""
    between = diagonals(case.graph, case.n, case.m)
    assert between is not None
    (low, high), behind = between, case.m - case.n
    return None if low is None else behind - low, None if high is None else high - behind


def _most(score: Node) -> float | None:
    """The number of a `softcap`."""
    match score:
        case Call("mul", (Number(value=most), Call("tanh"))) if most > 0:
            return float(most) if softcap(most).node == score else None
    return None


@cached_by_case
def _options(case: Case) -> dict[str, Any]:
    left, right = _window(case)
    most = _most(case.score) if "score" in case.features else None
    return {
        "softmax_scale": case.scale,
        "window_size_left": left,
        "window_size_right": right,
        "softcap": most or 0.0,
    }


@lru_cache(1)
def _package() -> Any:
    from flash_attn.cute import interface

    return interface


def bind(case: Case, layout: Layout) -> Direct | None:
    """A call without terms, for tensors of any strides."""
    if case.features - {"score"} or len(layout.lead) not in (1, 2):
        return None
    return Direct(name, lambda *tensors: BoundFlash(case))


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    out, lse = _forward(case, q.transpose(1, 2), k[:, :, None], v[:, :, None])
    return out.transpose(1, 2), lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    return backward_with_lse(case, saved, dout, None)


def backward_with_lse(case: Case, saved: Saved, dout: Tensor, dlse: Tensor | None) -> Grads:
    q, out, g = (x.transpose(1, 2) for x in (saved.q, saved.out, dout))
    k, v = saved.k[:, :, None], saved.v[:, :, None]
    dlse = None if dlse is None else dlse.float().contiguous()
    dq, dk, dv = _backward(case, (q, k, v, out, saved.lse), g, dlse)
    return Grads(dq.transpose(1, 2), dk[:, :, 0], dv[:, :, 0])


def _forward(case: Case, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The output, which lies in memory as q does, and the log-sum-exp (batch, heads, tokens)."""
    out, lse = _results(case, q)
    run = _package()._flash_attn_fwd
    with _on(q):
        run(q, k, v, out=out, lse=lse, return_lse=True, **_options(case))
    return out, lse


def _results(case: Case, q: Tensor) -> tuple[Tensor, Tensor]:
    batch, tokens, heads, d = q.shape
    if d == case.dv:
        out = torch.empty_like(q)
    else:
        out = q.new_empty(batch, heads, tokens, case.dv).transpose(1, 2)
    return out, q.new_empty(batch, heads, tokens, dtype=torch.float32)


def _backward(
    case: Case, saved: tuple[Tensor, ...], dout: Tensor, dlse: Tensor | None = None
) -> tuple[Tensor, ...]:
    *tensors, lse = saved
    dout = dout.contiguous() if 0 in dout.stride() else dout
    options = _options(case) | {"deterministic": torch.are_deterministic_algorithms_enabled()}
    run = _package()._flash_attn_bwd
    with _on(dout):
        found: tuple[Tensor, ...] = run(*tensors, dout, lse.contiguous(), dlse=dlse, **options)
    return found


def _on(x: Tensor) -> AbstractContextManager[Any]:
    """Launches go to the current device."""
    return nullcontext() if is_current(x.get_device()) else torch.cuda.device(x.device)


class BoundFlash:
    """Both passes for q, k and v of some strides.

    The package looks at some forty options again for every call, which takes longer than many
    kernels run: the first call finds the compiled kernel and the arguments that stay the same.
    """

    name = name

    def __init__(self, case: Case) -> None:
        self.case = case
        self.launch: Callable[..., None] | None = None
        self.rest: tuple[Any, ...] = ()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        one = q.ndim == 3
        q, k, v = (_tokens_first(x.detach()) for x in (q, k, v))
        aligned = not (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15
        if self.launch is not None and aligned:
            out, lse = _results(self.case, q)
            with _on(q):
                self.launch(q, k, v, out, lse, *self.rest)
        else:
            out, lse = self._first(q, k, v)
        out = out.transpose(1, 2)
        return out[0] if one else out, lse

    def _first(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """As the package launches; what it compiled is bound if it took tensors as they are."""
        with _WATCHING:
            run = _package()._flash_attn_fwd
            watched = run.compile_cache = _Watched(run.compile_cache)
            try:
                found = _forward(self.case, q, k, v)
            finally:
                run.compile_cache = watched.cache
        if len(watched.calls) == 1:
            launch, arguments = watched.calls[0]
            tensors = zip(arguments, (q, k, v, *found), strict=False)
            if all(taken.data_ptr() == x.data_ptr() for taken, x in tensors):
                self.launch, self.rest = launch, arguments[5:]
        return found

    def backward(self, saved: tuple[Tensor, ...], dout: Tensor) -> tuple[Tensor, ...]:
        *tensors, lse = saved
        one = dout.ndim == 3
        tensors, dout = [_tokens_first(x) for x in tensors], _tokens_first(dout)
        grads = [x.transpose(1, 2) for x in _backward(self.case, (*tensors, lse), dout)]
        return tuple(x[0] for x in grads) if one else tuple(grads)


def _tokens_first(x: Tensor) -> Tensor:
    """(..., heads, tokens, features) as (batch, tokens, heads, features)."""
    return (x if x.ndim == 4 else x[None]).transpose(1, 2)


_WATCHING = Lock()


class _Watched:
    """A cache of compiled kernels that notes which are called, with which arguments."""

    def __init__(self, cache: Any) -> None:
        self.cache, self.calls = cache, list[tuple[Callable[..., None], tuple[Any, ...]]]()

    def __contains__(self, key: Hashable) -> bool:
        return key in self.cache

    def __setitem__(self, key: Hashable, compiled: Callable[..., None]) -> None:
        self.cache[key] = compiled

    def __getitem__(self, key: Hashable) -> Callable[..., None]:
        compiled = self.cache[key]

        def call(*arguments: Any) -> None:
            self.calls.append((compiled, arguments))
            compiled(*arguments)

        return call
