"""Loops over rows on several threads: ranges of about equal work, one order of sums."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

SMALL = 1 << 16  # numbers that one thread reads sooner than it could start another
RANGES = 4  # for each thread, so that none waits long for the last


def spread(
    loop: Callable[..., None],
    arguments: tuple[Any, ...],
    ptr: Tensor,
    *,
    numbers: int,
    heads: int | None = None,
) -> None:
    """Run `loop(*arguments, [head,] first, last)` over the rows of `ptr`, for every head.

    `numbers` is how many it reads; the loop releases Python's lock.
    """
    threads, rows = torch.get_num_threads(), len(ptr) - 1
    lead = [()] if heads is None else [(h,) for h in range(heads)]
    if threads == 1 or numbers < SMALL:
        for head in lead:
            loop(*arguments, *head, 0, rows)
        return
    ends = _ends(ptr, max(-(-RANGES * threads // max(len(lead), 1)), 1))
    with ThreadPoolExecutor(threads) as pool:
        parts = [(*head, a, b) for head in lead for a, b in pairwise(ends) if a < b]
        for task in [pool.submit(loop, *arguments, *part) for part in parts]:
            task.result()


def _ends(ptr: Tensor, parts: int) -> list[int]:
    """Where ranges of rows with about as many entries end; a row without entries is work too."""
    load = ptr + torch.arange(len(ptr))
    marks = torch.linspace(0, int(load[-1]), parts + 1).long()
    ends: list[int] = torch.searchsorted(load, marks).clamp(max=len(ptr) - 1).tolist()
    return [0, *ends[1:-1], len(ptr) - 1]
