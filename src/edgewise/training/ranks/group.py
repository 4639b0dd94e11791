"""The ranks of a run: torchrun starts them, here they find each other, agree and fail together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from edgewise.distributed.errors import BadMesh, RankFailed, RanksDiffer
from edgewise.distributed.failures import Failures, failures_of
from edgewise.errors import EdgewiseError, Span
from edgewise.training.errors import RankMissing
from edgewise.training.runs.resuming import SHOWN, differences

if TYPE_CHECKING:
    from torch.distributed import Work
    from torch.distributed.device_mesh import DeviceMesh

START = 50.0  # seconds in which all ranks must start
LONGEST = 1800.0  # seconds that ranks wait for one of them, such as for the tokenizer of the first
NAMES = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # beside WORLD_SIZE, set by torchrun
BUCKET = 1 << 23  # numbers that are added up by one call
Result = TypeVar("Result")


@dataclass(frozen=True)
class RankGroup:
    """The ranks of a run, this one among them; one process is a group of one."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"  # of messages

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.count == 1

    def mesh(self, device: torch.device) -> DeviceMesh:
        """All ranks as a mesh of one axis."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(device.type, (self.count,))

    def add_up(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks, in buckets."""
        if self.is_alone:
            return
        import torch.distributed as dist

        sent = []
        for bucket in _buckets(tensors):
            flat = torch.cat([t.reshape(-1) for t in bucket])
            done = _started(partial(dist.all_reduce, flat))
            sent.append((bucket, flat, done))
        for bucket, flat, done in sent:
            done()
            parts = flat.split([t.numel() for t in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Whether it is so on some rank."""
        found = torch.tensor([int(flag)], device=self.device)
        self.add_up([found])
        return bool(found)

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, on all of them."""
        if self.is_alone:
            return [data]
        import torch.distributed as dist

        own = torch.tensor([len(data)], device=self.device)
        sizes = [torch.zeros_like(own) for _ in range(self.count)]
        _started(partial(dist.all_gather, sizes, own))()
        longest = max(1, *(int(size) for size in sizes))
        padded = bytearray(data.ljust(longest, b"\0"))
        mine = torch.frombuffer(padded, dtype=torch.uint8).to(self.device)
        found = [torch.empty_like(mine) for _ in sizes]
        _started(partial(dist.all_gather, found, mine))()
        return [t.cpu().numpy().tobytes()[: int(n)] for t, n in zip(found, sizes, strict=True)]

    def of_first(self, value: Any) -> Any:
        """What the first rank has, as JSON carries it."""
        if self.is_alone:
            return value
        text = json.dumps(value) if self.is_first else ""
        return json.loads(self.gather(text.encode())[0])

    def tensors(self, of_first: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of the first rank one by one, on all ranks."""
        if self.is_alone:
            yield from of_first.items()
            return
        import torch.distributed as dist

        listed = [(n, list(t.shape), str(t.dtype)) for n, t in of_first.items()]
        for name, shape, dtype in self.of_first(listed):
            kind = getattr(torch, dtype.removeprefix("torch."))
            own = torch.empty(shape, dtype=kind, device=self.device)
            if self.is_first:
                own.copy_(of_first[name])
            _started(partial(dist.broadcast, own, 0))()
            yield name, own

    def each(self, function: Callable[[], Result]) -> Result:
        """What a function returns; an error of ours on one rank is one on all."""
        failure: Exception | None = None
        try:
            found = function()
        except (EdgewiseError, OSError) as problem:
            failure = problem
        self.fail_together(failure)
        return found

    def on_first(self, function: Callable[[], Result]) -> Result | None:
        """What a function returns on the first rank; its errors are those of all."""
        return self.each(lambda: function() if self.is_first else None)

    def fail_together(self, failure: Exception | None) -> None:
        """Raise if one of the ranks failed: on the first of them what it was."""
        if self.is_alone:
            if failure is not None:
                raise failure
            return
        texts = [text.decode() for text in self.gather(str(failure or "").encode())]
        failed = [rank for rank, text in enumerate(texts) if text]
        if not failed:
            return
        if self.is_first and failure is not None:
            raise _failures().share(failure)
        what = f"rank {failed[0]} of {self.count} failed: {texts[failed[0]]}"
        raise RankFailed(what, None, "all ranks need the same files, packages and free memory")

    def agree(self, about: Mapping[str, Any]) -> None:
        """An error on all ranks unless they have the same tables, such as recipes."""
        every = [json.loads(text) for text in self.gather(json.dumps(about).encode())]
        for rank, other in enumerate(every):
            found = list(differences(every[0], other))
            if found:
                differ = RanksDiffer(
                    f"rank {rank} has another run than rank 0: {'; '.join(found[:SHOWN])} "
                    "(there: rank 0)",
                    None,
                    "give all ranks the same recipe, settings, data and packages",
                )
                raise differ if self.is_alone else _failures().share(differ)


ALONE = RankGroup()


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one dtype and device that follow each other, about `BUCKET` numbers together."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        alike = not bucket or (bucket[0].dtype, bucket[0].device) == (tensor.dtype, tensor.device)
        if bucket and (not alike or sum(t.numel() for t in bucket) + tensor.numel() > BUCKET):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


@contextmanager
def joined() -> Iterator[RankGroup]:
    """The ranks that were started: a group that is there already, those of torchrun, or one."""
    import torch.distributed as dist

    is_there = dist.is_available() and dist.is_initialized()
    count = dist.get_world_size() if is_there else started_ranks()
    if count == 1 and not is_there:
        yield ALONE
        return
    if not is_there:
        _start(count)
    try:
        with _failures().together():
            yield _found()
    finally:
        if not is_there:
            dist.destroy_process_group()


def _failures() -> Failures:
    import torch.distributed as dist

    assert dist.group.WORLD is not None
    return failures_of(dist.group.WORLD)


def _started(exchange: Callable[..., Work | None]) -> Callable[[], None]:
    return _failures().start(lambda: exchange(async_op=True), "a step of training")


def _found() -> RankGroup:
    import torch.distributed as dist

    kind = "cpu" if "cpu:" in str(dist.get_backend_config()) else "cuda"
    return RankGroup(dist.get_rank(), dist.get_world_size(), kind)


def started_ranks() -> int:
    """How many ranks were started, as the environment of torchrun says.

    >>> started_ranks()
    1
    """
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise _bad_environment(f"WORLD_SIZE is {text!r}, not a number of ranks")
    return int(text)


def own_rank() -> int:
    """The rank of this process, 0 where there is one."""
    text = os.environ.get("RANK", "0")
    return int(text) if started_ranks() > 1 and text.isdecimal() else 0


def _start(count: int) -> None:
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    rank = os.environ.get("RANK", "")
    absent = [name for name in NAMES if not os.environ.get(name)]
    if absent:
        raise _bad_environment(f"WORLD_SIZE is {count}, {' and '.join(absent)} not set")
    if not rank.isdecimal() or int(rank) >= count:
        raise _bad_environment(f"RANK is {rank!r}, WORLD_SIZE is {count}")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, number, count = next(iter(rendezvous("env://", timeout=_seconds(START))))
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # one store for all restarts: what an earlier attempt wrote must not be read
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            store = PrefixStore(f"edgewise/{attempt}", store)
        store.set(f"started/{number}", "")
        store.wait([f"started/{other}" for other in range(count)], _seconds(START))
        dist.init_process_group(
            backend, store=store, rank=number, world_size=count, timeout=_seconds(LONGEST)
        )
    except (dist.DistError, ValueError, RuntimeError) as problem:
        raise RankMissing(
            f"not all of {count} ranks started within {START:.0f} s: rank {rank} waited "
            f"({str(problem).splitlines()[0][:120]})",
            None,
            "start all of them: `torchrun --nproc-per-node 2 -m edgewise train RECIPE`",
        ) from None


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def _bad_environment(what: str) -> BadMesh:
    return BadMesh(
        what,
        Span.of("<environment>", "WORLD_SIZE"),
        "start ranks by `torchrun`, or unset WORLD_SIZE for one process",
    )
