"""The exponential moving average of weights: what is evaluated and saved, if a recipe has `ema`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """a ← d·a + (1 − d)·w after each step, with d = min(decay, (1 + t) / (10 + t)) at step t.

    >>> import torch
    >>> model = torch.nn.Linear(1, 1)
    >>> average = WeightAverage(model, 0.5)
    >>> torch.nn.init.ones_(model.weight).requires_grad
    True
    >>> for step in range(99):
    ...     average.update(model, step)
    >>> round(average.values["weight"].item(), 3)
    1.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Move towards the weights, faster in the first steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        now = [p.detach() for _, p in model.named_parameters()]
        torch._foreach_lerp_(list(self.values.values()), now, 1 - decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model has the averaged weights inside."""
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        _copy(model, self.values)
        try:
            yield
        finally:
            _copy(model, before)


@torch.no_grad()
def _copy(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, weight in model.named_parameters():
        weight.copy_(values[name])
