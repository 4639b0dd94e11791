"""Samples of earlier calls by their keys: a shuffled batch of them is gathered, not joined."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.inputs.kinds import Input, ragged, rows
from edgewise.physical.data import BUDGET, ChosenSamples, Data

LARGER = 16  # times that all samples are grounded together, as new ones come
Sample = dict[str, rows | Tensor]


class SeenSamples:
    """What samples of the calls of one model have in common with later ones: keys and shapes.

    Values are not held. The second batch of which every sample was seen before has all of them
    grounded together; from then on such batches are gathered.
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.samples: list[Sample] = []
        self.data: Data | None = None
        self.joined: str | None = None  # why batches of them are joined
        self._bytes = self._repeated = self._grounded = 0

    def batch(self, model: int, inputs: Mapping[str, Input]) -> Data | None:
        """A batch as some samples of data that has all of them; None where one is new."""
        batches = {n: item.samples for n, item in inputs.items() if isinstance(item, ragged)}
        count = len(next(iter(batches.values()), ()))
        alike = len(batches) == len(inputs) and {len(each) for each in batches.values()} == {count}
        if not count or not alike:
            return None
        each = zip(*batches.values(), strict=True)
        samples = [dict(zip(batches, sample, strict=True)) for sample in each]
        keys = [_key(sample) for sample in samples]
        if None in keys or not self._all_seen(keys, samples):
            return None
        self._repeated += 1
        numbers = np.array([self.numbers[key] for key in keys])
        if self._repeated < 2 or not self._grounds(model, int(numbers.max())):
            return None
        found = Data(model, dict(inputs))
        assert self.data is not None
        found.chosen = ChosenSamples(self.data, numbers)
        return found

    def _all_seen(self, keys: list[Hashable], samples: list[Sample]) -> bool:
        """Whether there is none that is new; those that are, are remembered."""
        seen = True
        for key, sample in zip(keys, samples, strict=True):
            if key not in self.numbers:
                seen = False
                size = sum(item.keys.nbytes for item in sample.values() if isinstance(item, rows))
                if self._bytes + 2 * size <= BUDGET:
                    self._bytes += 2 * size
                    self.numbers[key] = len(self.samples)
                    self.samples.append({name: _without(item) for name, item in sample.items()})
        return seen

    def _grounds(self, model: int, last: int) -> bool:
        """Whether there is data that has all samples up to the last one."""
        if self.data is None or last >= len(self.data):
            if self._grounded == LARGER:
                return False
            self._grounded += 1
            names = self.samples[0]
            every = {name: ragged([sample[name] for sample in self.samples]) for name in names}
            self.data = Data(model, dict(every))
        return True


def _key(sample: Sample) -> Hashable:
    """What decides how a sample is joined: keys, and the shapes of values; None for others."""
    found: list[Any] = []
    for name, item in sample.items():
        if isinstance(item, Tensor):
            found += (name, item.shape, item.dtype)
            continue
        values = item.values
        if item.strings or (values is not None and not values.is_floating_point()):
            return None
        kind = None if values is None else (values.shape, values.dtype)
        found += (name, item.keys.shape, item.keys.cpu().numpy().tobytes(), kind)
    return tuple(found)


def _without(item: rows | Tensor) -> rows | Tensor:
    """The same keys, of which later edits are not seen, with values that take no memory."""
    if isinstance(item, Tensor):
        return torch.zeros((), dtype=item.dtype, device=item.device).expand(item.shape)
    values = item.values
    if values is None:
        return rows(item.keys.clone())
    zero = torch.zeros((), dtype=values.dtype, device=values.device)
    return rows(item.keys.clone(), zero.expand(values.shape))
