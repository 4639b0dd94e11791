"""AdamW or Adam, its learning rate, and the exponential moving average of weights (`ema`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Schedule = Callable[[int], float]


def adam(model: nn.Module, how: Any) -> torch.optim.Adam:
    """AdamW, or Adam, whose decay is part of the gradient; vectors such as biases do not decay.

    `model.fresh` names weights that its checkpoint does not have, whose rate is `fresh_rate`.
    """
    fresh: set[str] = getattr(model, "fresh", set()) if how.fresh_rate else set()
    groups: dict[tuple[bool, bool], list[Any]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            fixed = p.ndim < 2 or name.endswith(("bias", "gain"))
            groups.setdefault((name in fresh, fixed), []).append(p)
    kind = torch.optim.Adam if how.optimiser == "adam" else torch.optim.AdamW
    return kind(
        [
            {
                "params": params,
                "weight_decay": 0.0 if fixed else how.weight_decay,
                "lr": how.fresh_rate if is_fresh else how.rate,
            }
            for (is_fresh, fixed), params in sorted(groups.items(), key=lambda item: item[0])
        ],
        lr=how.rate,
        betas=(how.beta1, how.beta2),
        eps=how.eps,
        fused=True,
    )


def scheduler(optimiser: Optimizer, training: Any) -> LambdaLR:
    """The learning rate schedule of a recipe."""
    least = training.least_rate / training.rate if training.rate else 0.0
    schedules: dict[str, Schedule] = {
        "cosine": cosine(training.warmup, training.steps, least),
        "noam": noam(training.warmup),
        "constant": constant(training.warmup),
    }
    return LambdaLR(optimiser, schedules[training.schedule])


def cosine(warmup: int, steps: int, least: float = 0.0) -> Schedule:
    """Linear warmup, then a cosine down to `least` of the rate at `steps`.

    >>> schedule = cosine(10, 110)
    >>> [round(schedule(step), 2) for step in (0, 9, 60, 110)]
    [0.1, 1.0, 0.5, 0.0]
    """

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return least + (1 - least) * (1 + math.cos(math.pi * done)) / 2

    return share


def noam(warmup: int) -> Schedule:
    """Linear warmup, then 1/√step, at most 1: https://arxiv.org/abs/1706.03762.

    >>> schedule = noam(100)
    >>> [round(schedule(step), 2) for step in (0, 99, 399)]
    [0.01, 1.0, 0.5]
    """
    top = max(warmup, 1)
    return lambda step: min((step + 1) / top, math.sqrt(top / (step + 1)))


def constant(warmup: int) -> Schedule:
    """Linear warmup, then constant."""
    return lambda step: min((step + 1) / max(warmup, 1), 1.0)


class WeightAverage:
    """a ← d·a + (1 − d)·w after each step, with d = min(decay, (1 + t) / (10 + t)) at step t.

    >>> import torch
    >>> model = torch.nn.Linear(1, 1)
    >>> average = WeightAverage(model, 0.5)
    >>> torch.nn.init.ones_(model.weight).requires_grad
    True
    >>> for step in range(99):
    ...     average.update(step)
    >>> round(average.values["weight"].item(), 3)
    1.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {name: p.detach().clone() for name, p in model.named_parameters()}
        self._averages = list(self.values.values())
        self._weights: list[Tensor] = list(model.parameters())

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the weights, faster in the first steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._averages, self._weights, 1 - decay)

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
