"""Loops over rows on several threads: ranges of about equal work, one order of sums."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

SMALL = 1 << 16  # numbers that one thread reads sooner than it could start another
RANGES = 4  # for each thread, so that none waits long for the last


def spread(
    loop: Callable[..., None], calls: Sequence[tuple[Any, ...]], ptr: np.ndarray, *, numbers: int
) -> None:
    """Run `loop(*call, first, last)` over the rows of `ptr`, for every call.

    `numbers` is how many it reads; the loop releases Python's lock.
    """
    threads, rows = torch.get_num_threads(), len(ptr) - 1
    if threads == 1 or numbers < SMALL:
        for call in calls:
            loop(*call, 0, rows)
        return
    ends = _ends(ptr, max(-(-RANGES * threads // max(len(calls), 1)), 1))
    parts = ((*call, a, b) for call in calls for a, b in pairwise(ends) if a < b)
    left = iter(list(parts))
    others = [_pool(os.getpid(), threads).submit(_work, loop, left) for _ in range(threads - 1)]
    _work(loop, left)
    for other in others:
        other.result()


def _work(loop: Callable[..., None], left: Iterator[tuple[Any, ...]]) -> None:
    for part in left:  # each part is handed out once
        loop(*part)


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Kept, because threads cost more to start than a small graph does; not over a fork."""
    return ThreadPoolExecutor(threads - 1)


def _ends(ptr: np.ndarray, parts: int) -> list[int]:
    """Where ranges of rows with about as many entries end; a row without entries is work too."""
    load = ptr + np.arange(len(ptr))
    marks = np.linspace(0, load[-1], parts + 1).astype(np.int64)
    ends: list[int] = np.searchsorted(load, marks).clip(max=len(ptr) - 1).tolist()
    return [0, *ends[1:-1], len(ptr) - 1]
