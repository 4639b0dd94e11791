"""Rows between ranks: uneven exchanges whose bytes are counted, and agreement before them."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgewise.distributed.errors import BadMesh, RanksDiffer
from edgewise.distributed.failures import Failures, check_alive, failures_of
from edgewise.errors import caller
from edgewise.layouts.ragged import Ints

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

_COUNTERS: list[Counter[str]] = []


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts the bytes that this rank receives inside, by kind.

    >>> with counting() as received:
    ...     pass  # calls of a model on a mesh
    >>> dict(received)
    {}
    """
    counter: Counter[str] = Counter()
    _COUNTERS.append(counter)
    try:
        yield counter
    finally:
        _COUNTERS.remove(counter)


class Requested(NamedTuple):
    """`order` sorts the requested rows by owner, so that `received[r]` come from rank r; `wanted`
    are the rows that the others read of this rank, `sent[r]` of them for rank r."""

    order: Ints
    received: list[int]
    sent: list[int]
    wanted: Ints


@dataclass(frozen=True, eq=False)
class Ranks:
    """One axis of a mesh: its process group, how many ranks it has, and which this one is."""

    group: ProcessGroup
    count: int
    rank: int
    device: torch.device

    def exchange(
        self, rows: Tensor, sent: list[int], received: list[int], kind: str
    ) -> Callable[[], Tensor]:
        """Send `sent[r]` of the rows to rank r, in order; the result, once it is waited for, has
        `received[r]` rows from rank r."""
        import torch.distributed as dist

        width = int(np.prod(rows.shape[1:]))
        out = rows.new_empty(sum(received), *rows.shape[1:])
        size = width * rows.element_size()
        for counter in _COUNTERS:
            counter[kind] += (sum(received) - received[self.rank]) * size
        flat, into = (_bytes(x.contiguous(), size) for x in (rows, out))
        done = self.failures.start(
            lambda: dist.all_to_all_single(
                into, flat, received, sent, group=self.group, async_op=True
            ),
            kind,
        )

        def wait(flat: Tensor = flat) -> Tensor:  # which lives until it is sent
            done()
            return out

        return wait

    @property
    def failures(self) -> Failures:
        """What is known of ranks that failed."""
        return failures_of(self.group)

    def told(self, counts: Ints) -> Ints:
        """What each rank counts of this one, from a count of every rank."""
        once = [1] * self.count
        return self.exchange(self.integers(counts), once, once, "plan")().cpu().numpy()

    def request(self, rows: Ints, owner: Ints) -> Requested:
        """Tell the owner of each row that this rank reads it."""
        order = np.argsort(owner, kind="stable")
        received = np.bincount(owner, minlength=self.count).tolist()
        sent = self.told(received).tolist()
        wanted = self.exchange(self.integers(rows[order]), received, sent, "plan")()
        return Requested(order, received, sent, wanted.cpu().numpy())

    def gather(self, row: Tensor) -> Tensor:
        """The rows of equal shape of all ranks, in order."""
        import torch.distributed as dist

        out = [torch.empty_like(row) for _ in range(self.count)]
        own = row.contiguous()
        self.failures.start(
            lambda: dist.all_gather(out, own, group=self.group, async_op=True), "a plan"
        )()
        return torch.stack(out)

    def gather_lists(self, values: Ints) -> list[Ints]:
        """A list of integers of every rank."""
        counts = self.gather(self.integers([len(values)]))[:, 0].tolist()
        padded = np.zeros(max(counts), np.int64)
        padded[: len(values)] = values
        found = self.gather(self.integers(padded)).cpu().numpy()
        return [found[rank, :count] for rank, count in enumerate(counts)]

    def integers(self, values: object) -> Tensor:
        """Integers as a tensor that can be sent."""
        return torch.as_tensor(np.asarray(values, np.int64), device=self.device)

    def agree(self, what: str, call: Hashable, failure: Exception | None = None) -> None:
        """An error on all ranks unless they are about to do the same."""
        mark = hashlib.sha256(f"{what}\n{_remembered(call)}".encode()).digest()
        mine = np.frombuffer(mark[:24], np.int64).copy()
        if failure is not None:
            mine[:] = 0
        every = self.gather(self.integers(mine)).cpu()
        if failure is not None:
            raise self.failures.share(failure)
        odd = (every != every[0]).any(1).nonzero().flatten().tolist()
        failed = (every == 0).all(1).nonzero().flatten().tolist()
        if failed or odd:
            which = failed or odd
            listed = ", ".join(map(str, which[:8]))
            several = len(which) > 1
            verb = "differ" if several else "differs"
            reason = "could not make the call" if failed else f"{verb} from rank 0 in {what}"
            raise self.failures.share(
                RanksDiffer(
                    f"rank{'s' if several else ''} {listed} {reason}",
                    caller(),
                    "make the same call on all ranks: graph, shapes, dtype and options; where they "
                    "have different numbers of tokens, with `shards=`",
                )
            )

    def any(self, flag: bool) -> bool:
        """Whether it is so on some rank."""
        return bool(self.gather(self.integers([flag])).any())

    def of_first(self, values: Ints) -> Ints:
        """The integers of rank 0, on all ranks."""
        import torch.distributed as dist

        count = self.first(len(values))
        found = self.integers(values if self.rank == 0 else np.zeros(count, np.int64))
        self.failures.start(
            lambda: dist.broadcast(found, group_src=0, group=self.group, async_op=True),
            "what the first rank has",
        )()
        return found.cpu().numpy()

    def first(self, number: int) -> int:
        """The number of rank 0."""
        return int(self.gather(self.integers([number]))[0, 0])


def ranks_of(mesh: DeviceMesh, device: torch.device) -> Ranks:
    """The ranks of a mesh of one axis."""
    name = type(mesh).__name__
    if name != "DeviceMesh" or not hasattr(mesh, "get_group"):
        raise BadMesh(
            f"`mesh` is {name}, not a DeviceMesh",
            caller(),
            'give one axis of a mesh: `init_device_mesh("cpu", (4,), mesh_dim_names=("cp",))`',
        )
    if mesh.ndim != 1:
        raise BadMesh(
            f"`mesh` has {mesh.ndim} axes",
            caller(),
            f"give one of them: `mesh[{(mesh.mesh_dim_names or ('cp',))[0]!r}]`",
        )
    if mesh.device_type != device.type:
        raise _other_device(mesh, device)
    check_alive()
    return Ranks(mesh.get_group(), mesh.size(), mesh.get_local_rank(), device)


def agreeing_ranks(mesh: DeviceMesh, device: torch.device) -> tuple[Ranks, BadMesh | None]:
    """The ranks of a mesh of one axis, and what they have to be told where this one has tensors on
    another device."""
    kind = getattr(mesh, "device_type", device.type)
    if kind in (device.type, "meta"):
        return ranks_of(mesh, device), None
    return ranks_of(mesh, torch.device(kind)), _other_device(mesh, device)


def _other_device(mesh: DeviceMesh, device: torch.device) -> BadMesh:
    return BadMesh(
        f"`mesh` is of {mesh.device_type}, the tensors are on {device.type}",
        caller(),
        f'make it by `init_device_mesh("{device.type}", ...)`',
    )


def _bytes(x: Tensor, width: int) -> Tensor:
    """Rows of bytes: backends do not know all dtypes."""
    if x.numel():
        # one row may have any stride and is contiguous all the same
        return x.as_strided((x.numel(),), (1,)).view(torch.uint8).view(len(x), -1)
    return x.new_empty(len(x), width, dtype=torch.uint8)


@lru_cache(256)
def _remembered(call: Hashable) -> str:
    """The text of a call, which models make again and again."""
    return _text(call)


def _text(call: object) -> str:
    """A text that differs where calls do; arrays of graphs count with all numbers."""
    written = io.BytesIO()
    try:
        _Contents(written).dump(call)
    except Exception:  # a graph may hold what does not travel
        return repr(call)
    return hashlib.sha256(written.getvalue()).hexdigest()


class _Contents(pickle.Pickler):
    """Writes what things hold, to be compared: tensors as numbers, functions as their code."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Tensor):
            numbers = thing.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
            return print, (str(thing.dtype), tuple(thing.shape), numbers)
        if isinstance(thing, CodeType):
            return print, (thing.co_code, thing.co_names, thing.co_consts)
        if isinstance(thing, FunctionType):
            held = [cell.cell_contents for cell in thing.__closure__ or ()]
            read = [thing.__globals__.get(name) for name in thing.__code__.co_names]
            data = [x for x in read if isinstance(x, int | float | str | tuple | list | Tensor)]
            return print, (thing.__code__, thing.__defaults__, held, data)
        return NotImplemented
