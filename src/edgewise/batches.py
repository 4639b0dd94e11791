"""Mini-batches: some samples of grounded data, or the part of a graph that some seeds need."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller, safe_repr
from edgewise.execution import Execution
from edgewise.inputs.kinds import Input
from edgewise.language import nodes
from edgewise.layouts.ragged import Ints
from edgewise.physical.data import Data, Demand
from edgewise.physical.demand.wanted import Want, WantLike, read_want
from edgewise.physical.plan import untraced
from edgewise.physical.sampling import BadBatches, Sampler


class Batch(Data):
    """Data for some seeds: `model(batch)` has a row for each, in order.

    `index` are the places of the seeds among all of them, `seeds` their keys: a tensor (rows,), or
    (terms, rows), or a list of tuples if some are strings.

    >>> import torch
    >>> from edgewise import Program, R, V
    >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
    >>> data = model.ground(x=torch.arange(4.0), edge=[(0, 1), (1, 2), (2, 3)])
    >>> batch = next(iter(model.batches(torch.tensor([3, 1]), data, batch=2, shuffle=False)))
    >>> batch.seeds.tolist(), model(batch).tolist()
    ([3, 1], [2.0, 0.0])
    """

    decided: Mapping[Data, Data] = MappingProxyType({})  # by what values select, where they do
    seeds: Tensor | list[tuple[nodes.Constant, ...]]


Made = TypeVar("Made", bound=Data)


class Epochs(Generic[Made]):
    """Iterates over the batches of an epoch; the next time, over those of the next one.

    Batch `step`, counted over all epochs, depends on the seed and on nothing else.
    """

    def __init__(
        self,
        model: Execution,
        data: Data,
        count: int,
        *,
        batch: int,
        seed: int,
        shuffle: bool,
        workers: int,
        prefetch: int,
        drop_last: bool,
    ) -> None:
        self.model, self.data, self.count = model, data, count
        self.size = _integer("batch", batch, 1)
        self.seed, self.shuffle = _integer("seed", seed, 0), shuffle
        self.workers = _integer("workers", workers, 0)
        self.prefetch = _integer("prefetch", prefetch, 1)
        self.drop_last = drop_last
        self.epoch = 0

    def __len__(self) -> int:
        full, rest = divmod(self.count, self.size)
        return full + bool(rest and not self.drop_last)

    def at(self, step: int) -> Made:
        """Batch number `step`, counted over all epochs.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> data = model.ground(x=torch.arange(4.0), edge=[(0, 1), (1, 2), (2, 3)])
        >>> batches = model.batches(torch.tensor([3, 1]), data, batch=1, shuffle=False)
        >>> batches.at(1).seeds.tolist()
        [1]
        """
        epoch, number = divmod(_integer("step", step, 0), max(len(self), 1))
        index = self._order(epoch)[number * self.size : (number + 1) * self.size]
        return self._made(step, index)

    def __iter__(self) -> Iterator[Made]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        order, first = self._order(epoch), epoch * len(self)
        starts = range(0, len(self) * self.size, self.size)
        tasks = [
            partial(self._made, first + number, order[start : start + self.size])
            for number, start in enumerate(starts)
        ]
        if not self.workers:
            yield from (task() for task in tasks)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            waiting: deque[Future[Made]] = deque()
            for task in tasks:
                waiting.append(pool.submit(task))
                if len(waiting) > self.workers * self.prefetch:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _order(self, epoch: int) -> Ints:
        if not self.shuffle:
            return np.arange(self.count)
        return np.random.default_rng([self.seed, 0, epoch]).permutation(self.count)

    @abstractmethod
    def _made(self, step: int, index: Ints) -> Made:
        """The batch of these places."""


class SampleBatches(Epochs[Data]):
    """Batches of the samples of grounded data, in a new order in every epoch.

    >>> import torch
    >>> from edgewise import Program, R, V, ragged
    >>> model = Program([R.h <= R.x(V.I)]).compile(R.h)
    >>> data = model.ground(x=ragged([torch.ones(n) for n in (1, 2, 3)]))
    >>> [model(batch).data.tolist() for batch in model.batches(data, batch=2, shuffle=False)]
    [[1.0, 2.0], [3.0]]
    """

    def _made(self, step: int, index: Ints) -> Data:
        found = self.data.of_samples(index)
        found.step = step
        self.model._gathers(found, {})
        return found


class Batches(Epochs[Batch]):
    """Batches of seeds, each with the part of the data that it needs.

    >>> import torch
    >>> from edgewise import Program, R, V
    >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
    >>> data = model.ground(x=torch.arange(4.0), edge=[(0, 1), (1, 2), (2, 3)])
    >>> batches = model.batches(torch.tensor([3, 1, 2]), data, batch=2, shuffle=False)
    >>> len(batches), [model(batch).tolist() for batch in batches]
    (2, [[2.0, 0.0], [1.0]])
    """

    def __init__(
        self,
        model: Execution,
        seeds: WantLike,
        data: Data,
        inputs: Mapping[str, Input],
        *,
        most: Sequence[int | None] | None,
        **options: Any,
    ) -> None:
        self.most, self.inputs = _checked_most(most), inputs
        want = read_want(model.plan, seeds)
        if len(want.keys) != 1:
            raise BadBatches(
                f"`seeds` are keys of {len(want.keys)} outputs", caller(), "give those of one"
            )
        (self.output, self.keys), *_ = want.keys.items()
        count = self.keys.shape[1] if isinstance(self.keys, Tensor) else len(self.keys)
        super().__init__(model, data, count, **options)

    def _made(self, step: int, index: Ints) -> Batch:
        """The batch with its plan, as far as inputs are known."""
        random = np.random.default_rng([self.seed, 1, step])
        sampler = None if self.most is None else Sampler(self.most, random)
        found = Batch(
            self.data.model, {**self.data.inputs, **self.inputs}, self.data.facts, self.data.open
        )
        found.index, found.step = torch.from_numpy(index), step
        if isinstance(self.keys, Tensor):
            keys: Any = self.keys[:, found.index]
            found.seeds = keys[0] if len(keys) == 1 else keys
        else:
            keys = tuple(self.keys[place] for place in index.tolist())
            found.seeds = list(keys)
        found.demand = Demand(self.data, Want({self.output: keys}), sampler)
        model = self.model
        if found.stated.union(found.inputs).issuperset(model.inputs):
            with untraced():
                model._ready_plan(found)
        return found


def _checked_most(most: Any) -> tuple[int | None, ...] | None:
    if most is None:
        return None
    if not isinstance(most, list | tuple) or not all(
        n is None or (isinstance(n, int) and not isinstance(n, bool) and n > 0) for n in most
    ):
        raise BadBatches(
            f"`most` is {safe_repr(most)}",
            caller(),
            "give a number of groundings for each hop, None for all: `most=[15, 10]`",
        )
    return tuple(most)


def _integer(name: str, number: Any, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise BadBatches(
            f"`{name}` is {safe_repr(number)}", caller(), f"give an integer from {least} on"
        )
    return number


__all__ = ["Batch", "Batches", "SampleBatches"]
