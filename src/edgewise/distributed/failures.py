"""A rank that fails tells the others, which then wait for nothing that it would have sent.

What failed is written to the store of the process group. Who waits longer than a moment looks
there. Where all ranks fail at the same place, as they do by a mistake in the program, none is ahead
of another, and the group can be used again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from edgewise.distributed.errors import BadMesh, RankFailed
from edgewise.errors import caller

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup, Work

LOOK = timedelta(seconds=1)  # after which a rank that waits looks for failures
_MADE: Counter[str] = Counter()  # groups of each name in this process
GRACE = 10.0  # seconds in which a rank that fails waits for the others to learn of it
HELP = "its own message says more; start all ranks again"


class Failures:
    """What the ranks of a group know of each other's failures."""

    def __init__(self, group: ProcessGroup) -> None:
        import torch.distributed as dist

        self.group = group
        self.count, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.started = 0  # exchanges; all ranks have as many at the same place of a program
        self.round = 0  # of failures of all ranks
        self.known: str | None = None  # which rank failed and why: the group is of no use then
        self.shared = False  # whether all ranks raise since the last exchange
        self._depth = 0
        _MADE[group.group_name] += 1
        self._life = _MADE[group.group_name]  # of a name that a later group may have again

    def start(self, exchange: Callable[[], Work | None], kind: str) -> Callable[[], None]:
        """Start an exchange; what is returned waits for it, with an error of ours where another
        rank will not take part in it."""
        if self.known is not None:
            raise _error(self.known)
        check_alive()
        self.started, self.shared = self.started + 1, False
        number = self.started
        with self._translated():
            work = exchange()

        def wait() -> None:
            on_cpu = "gloo" in self._backend
            with self._translated():
                while work is not None and not self._done(work, on_cpu):
                    self._look(number)
                    self._compare(number, kind)

        return wait

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as problem:
            if not is_lost(problem):
                raise
            raise self.lost() from None

    def _done(self, work: Work, on_cpu: bool) -> bool:
        try:
            # on a GPU this waits on a stream, and the process group has a watchdog
            work.wait(LOOK) if on_cpu else work.wait()
        except RuntimeError as problem:
            if "Operation timed out" in str(problem):
                return False
            raise
        return True

    @property
    def _backend(self) -> str:
        import torch.distributed as dist

        return str(dist.get_backend_config(self.group))

    def share(self, error: Exception) -> Exception:
        """An error that all ranks raise now: none has to be told."""
        self.shared = True
        return error

    @contextmanager
    def together(self) -> Iterator[None]:
        """An error inside is told to the other ranks, unless they raise it as well; where another
        rank is gone, the error is ours."""
        self._depth += 1
        try:
            with self._translated():
                yield
        except Exception as error:
            told = isinstance(error, RankFailed) or self.shared
            if self._depth == 1 and self.count > 1 and not told:
                self._tell(error)
            raise
        finally:
            self._depth -= 1

    def _tell(self, error: Exception) -> None:
        """Write an error to the store, and wait some time until all other ranks know of it."""
        text = str(getattr(error, "message", "")) or f"{type(error).__name__}: {error}"
        self.known = self._said(self.rank, text)
        others = {rank for rank in range(self.count) if rank != self.rank}
        alike, end = True, time.monotonic() + GRACE

        def write(store: Any) -> None:
            store.set(self._key("failed", self.rank), f"{self.started}\n{text}")
            store.set(self._key("any"), "1")

        if not self._with_store(write, otherwise=True):
            while others and time.monotonic() < end:
                for rank in list(others):
                    found = self._failure(rank)
                    if found is not None or self._is_told(rank):
                        alike &= found is not None and found[0] == self.started
                        others.discard(rank)
                time.sleep(0.02)
        if alike and not others:
            self.known, self.round = None, self.round + 1

    def lost(self) -> RankFailed:
        """The error where a rank does not answer: its own words, if it left any."""
        for rank in range(self.count):
            found = None if rank == self.rank else self._failure(rank)
            if found is not None:
                return self._learned(rank, found[1])
        self.known = (
            f"another rank ended or no longer answers, rank {self.rank} of {self.count} cannot "
            "go on without it"
        )
        return _error(self.known)

    def _look(self, number: int) -> None:
        """Raise if a rank failed before it took part in an exchange."""
        if self._with_store(lambda store: store.check([self._key("any")]), otherwise=False):
            for rank in range(self.count):
                found = None if rank == self.rank else self._failure(rank)
                if found is not None and found[0] < number:
                    raise self._learned(rank, found[1])

    def _compare(self, number: int, kind: str) -> None:
        """Raise if another rank waits in another exchange at the same place of a program."""

        def waiting(store: Any) -> list[tuple[int, str]]:
            store.set(self._key("waits", self.rank), f"{number}\n{kind}")
            keys = [(rank, self._key("waits", rank)) for rank in range(self.count)]
            return [(rank, store.get(key).decode()) for rank, key in keys if store.check([key])]

        for rank, text in self._with_store(waiting, otherwise=[]):
            at, _, other = text.partition("\n")
            if int(at) == number and other != kind:
                self.known = (
                    f"the calls of ranks differ: rank {self.rank} of {self.count} waits for "
                    f"{kind}, rank {rank} for {other}"
                )
                time.sleep(2 * LOOK.total_seconds())  # in which the others look as well
                raise _error(self.known)

    def _learned(self, rank: int, text: str) -> RankFailed:
        self._with_store(lambda store: store.set(self._key("told", self.rank), "1"), otherwise=None)
        self.known = self._said(rank, text)
        return _error(self.known)

    def _said(self, rank: int, text: str) -> str:
        return f"rank {rank} of {self.count} failed: {text}"

    def _failure(self, rank: int) -> tuple[int, str] | None:
        """After how many exchanges a rank failed, and its message."""
        key = self._key("failed", rank)
        text = self._with_store(
            lambda store: store.get(key).decode() if store.check([key]) else None, otherwise=None
        )
        if text is None:
            return None
        started, _, message = text.partition("\n")
        return int(started), message

    def _is_told(self, rank: int) -> bool:
        """Also where nobody can say."""
        key = self._key("told", rank)
        return bool(self._with_store(lambda store: store.check([key]), otherwise=True))

    def _key(self, *parts: object) -> str:
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # may have the store of another
        names = ("edgewise", attempt, self.group.group_name, self._life, self.round, *parts)
        return "/".join(map(str, names))

    def _with_store(self, use: Callable[[Any], Any], *, otherwise: Any) -> Any:
        """What is found in the store, which ends with the process that holds it."""
        from torch.distributed.distributed_c10d import _get_default_store

        try:
            return use(_get_default_store())
        except (RuntimeError, ValueError):
            return otherwise


def check_alive() -> None:
    """Refuse to send by a process group that is no more."""
    import torch.distributed as dist

    if not dist.is_initialized():
        raise BadMesh(
            "the process group of `mesh` was destroyed",
            caller(),
            "call `destroy_process_group` after the last call and its `backward`",
        )


def _error(what: str) -> RankFailed:
    return RankFailed(what, None, HELP)


_FAILURES: WeakKeyDictionary[object, Failures] = WeakKeyDictionary()


def failures_of(group: ProcessGroup) -> Failures:
    """Those of a process group."""
    if group not in _FAILURES:
        _FAILURES[group] = Failures(group)
    return _FAILURES[group]


def is_lost(problem: RuntimeError) -> bool:
    """Whether another rank is gone: its connection was closed, or it did not answer in time."""
    import torch.distributed as dist

    text = str(problem)
    return isinstance(problem, dist.DistError) or "gloo" in text or "NCCL" in text
