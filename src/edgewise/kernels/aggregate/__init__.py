"""Aggregation of the rows that each head reads: sums, means, extremes; nothing written out.

y_s = agg_e scale_e · x[rows_e] over the entries e of segment s: O(rows · d + entries) of memory.
"""

from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from edgewise.kernels.aggregate.contract import Case, Choice
from edgewise.kernels.aggregate.functions import called
from edgewise.kernels.aggregate.index import Gather, gather, runs
from edgewise.kernels.aggregate.operators import traced
from edgewise.kernels.aggregate.registry import IMPLEMENTATIONS, choose

__all__ = [
    "IMPLEMENTATIONS",
    "Case",
    "Choice",
    "Gather",
    "choose",
    "extreme",
    "gather",
    "mean",
    "runs",
    "total",
]


def total(x: Tensor, which: Gather, scale: Tensor | None = None) -> Tensor:
    """The sum of each segment: x is (rows, d), scale (entries,) or all ones.

    >>> which = gather(torch.tensor([2, 0, 2]), torch.tensor([0, 0, 1]), 2, 3)
    >>> total(torch.tensor([[1.0], [2.0], [3.0]]), which).tolist()
    [[4.0], [3.0]]
    """
    return _run(x).total(x, scale, None, which)


def mean(x: Tensor, which: Gather) -> Tensor:
    """The mean of each segment; 0 where it is empty."""
    if x.dtype == torch.float64:  # shares have the digits of float32
        return total(x, which) / which.forth.ptr.diff().clamp(min=1)[:, None]
    forth, back = (share.to(x.dtype) for share in which.shares)
    return _run(x).total(x, forth, back, which)


def extreme(x: Tensor, which: Gather, *, largest: bool) -> Tensor:
    """The largest or smallest of each segment, column by column; ±∞ where it is empty."""
    return _run(x).extreme(x, largest, which)


def _run(x: Tensor) -> Any:
    """Operators in a trace, where a tensor is only described; else functions of autograd."""
    traces = get_proxy_mode() is not None or torch.compiler.is_compiling() or x.is_meta
    return traced if traces or type(x) not in (Tensor, torch.nn.Parameter) else called
