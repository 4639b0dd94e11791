"""Loops over rows on several threads, which the caller is one of: sums have one order.

Threads wait for work: to hand it over takes some ten microseconds, to start a thread more than a
hundred. The loops release Python's lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

Loop = Callable[..., None]
Job = Callable[[], None]
SMALL = 1 << 16  # numbers that one thread reads sooner than it could start another
RANGES = 4  # for each thread, so that none waits long for the last


class Worker:
    """A thread that runs one job at a time."""

    def __init__(self) -> None:
        self._ready, self._done = threading.Lock(), threading.Lock()
        self._ready.acquire()
        self._done.acquire()
        self._job: Job | None = None
        self._failed: BaseException | None = None
        threading.Thread(target=self._serve, name="edgewise", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._ready.acquire()
            assert self._job is not None
            try:
                self._job()
            except BaseException as problem:  # raised by the caller, who waits for it
                self._failed = problem
            self._job = None  # what it held may be freed
            self._done.release()

    def start(self, job: Job) -> None:
        self._job = job
        self._ready.release()

    def wait(self) -> None:
        self._done.acquire()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


class _Crew:
    """The workers of this process: a fork has none of its parent's threads."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.busy = threading.Lock()
        self.workers: list[Worker] = []


_crew = _Crew()


def _run(jobs: Sequence[Job]) -> None:
    """The first by the caller, the others by workers; all by the caller while those are busy."""
    global _crew
    if _crew.process != os.getpid():
        _crew = _Crew()
    crew = _crew
    if len(jobs) == 1 or not crew.busy.acquire(blocking=False):
        for job in jobs:
            job()
        return
    try:
        while len(crew.workers) < len(jobs) - 1:
            crew.workers.append(Worker())
        started = crew.workers[: len(jobs) - 1]
        for worker, job in zip(started, jobs[1:], strict=True):
            worker.start(job)
        jobs[0]()
        for worker in started:
            worker.wait()
    except BaseException:  # such as an interrupt while waiting: who is done is not known
        _crew = _Crew()
        raise
    finally:
        crew.busy.release()


def spread(loop: Loop, calls: Sequence[tuple[Any, ...]], ptr: np.ndarray, *, numbers: int) -> None:
    """Run `loop(*call, first, last)` over the rows of `ptr`, for every call.

    `numbers` is how many it reads. Ranges of about equal work are handed out one after another.
    """
    threads, rows = torch.get_num_threads(), len(ptr) - 1
    if threads == 1 or numbers < SMALL:
        for call in calls:
            loop(*call, 0, rows)
        return
    ends = _ends(ptr, max(-(-RANGES * threads // max(len(calls), 1)), 1))
    parts = [(*call, a, b) for call in calls for a, b in pairwise(ends) if a < b]
    _run([partial(_each, loop, iter(parts))] * threads)  # each part is handed out once


def together(loop: Loop, items: Sequence[tuple[Any, ...]], rows: Sequence[int]) -> None:
    """Run `loop(*item, first, last)` over the rows of every item, a share of each on a thread."""
    threads = torch.get_num_threads()
    if threads == 1:
        for item, count in zip(items, rows, strict=True):
            loop(*item, 0, count)
        return
    shares = [
        [(*i, n * t // threads, n * (t + 1) // threads) for i, n in zip(items, rows, strict=True)]
        for t in range(threads)
    ]
    _run([partial(_each, loop, iter(share)) for share in shares])


def _each(loop: Loop, calls: Iterator[tuple[Any, ...]]) -> None:
    for arguments in calls:
        loop(*arguments)


def _ends(ptr: np.ndarray, parts: int) -> list[int]:
    """Where ranges of rows with about as many entries end; a row without entries is work too."""
    load = ptr + np.arange(len(ptr))
    marks = load[-1] * np.arange(1, parts) // parts
    ends = np.minimum(load.searchsorted(marks), len(ptr) - 1)  # without calls of Python
    return [0, *ends.tolist(), len(ptr) - 1]
