"""Threads that wait for work: short loops, many times a second, that share it with the caller.

To hand work over takes some ten microseconds, to start a thread more than a hundred.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

Loop = Callable[..., None]
Calls = list[tuple[Any, ...]]


class Helper:
    """A thread that runs the loops it is given, one set at a time."""

    def __init__(self) -> None:
        self._ready, self._done = threading.Lock(), threading.Lock()
        self._ready.acquire()
        self._done.acquire()
        self._work: tuple[Loop, Calls] | None = None
        self._failed: BaseException | None = None
        threading.Thread(target=self._serve, name="edgewise", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._ready.acquire()
            assert self._work is not None
            loop, calls = self._work
            try:
                for arguments in calls:
                    loop(*arguments)
            except BaseException as problem:  # given to the caller, who waits for it
                self._failed = problem
            self._work = None  # what it held may be freed
            del loop, calls
            self._done.release()

    def start(self, loop: Loop, calls: Calls) -> None:
        self._work = loop, calls
        self._ready.release()

    def wait(self) -> None:
        self._done.acquire()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


class _Crew:
    """The helpers of this process: a fork has none of its parent's threads."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.busy = threading.Lock()
        self.helpers: list[Helper] = []


_crew = _Crew()


def together(loop: Loop, items: Sequence[tuple[Any, ...]], rows: Sequence[int]) -> None:
    """Run `loop(*item, first, last)` over the rows of every item, on as many threads as torch has.

    The loop releases Python's lock. Each thread takes its share of every item; the caller is one
    of them, and all of them while others use the helpers.
    """
    global _crew
    threads = torch.get_num_threads()
    if _crew.process != os.getpid():
        _crew = _Crew()
    crew = _crew
    if threads == 1 or not crew.busy.acquire(blocking=False):
        for item, count in zip(items, rows, strict=True):
            loop(*item, 0, count)
        return
    try:
        while len(crew.helpers) < threads - 1:
            crew.helpers.append(Helper())
        helpers = crew.helpers[: threads - 1]
        shares = [
            [
                (*i, n * t // threads, n * (t + 1) // threads)
                for i, n in zip(items, rows, strict=True)
            ]
            for t in range(threads)
        ]
        for helper, share in zip(helpers, shares[1:], strict=True):
            helper.start(loop, share)
        for arguments in shares[0]:
            loop(*arguments)
        for helper in helpers:
            helper.wait()
    except BaseException:  # such as an interrupt while waiting: who is done is not known
        _crew = _Crew()
        raise
    finally:
        crew.busy.release()
