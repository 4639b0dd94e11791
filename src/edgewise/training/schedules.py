"""How the rate of learning goes: up over the first steps, then down."""

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Share = Callable[[int], float]


def scheduler(optimiser: Optimizer, training: Any) -> LambdaLR:
    """torch's own, along the curve that a recipe asks for."""
    least = training.least_rate / training.rate if training.rate else 0.0
    curves: dict[str, Share] = {
        "cosine": cosine(training.warmup, training.steps, least),
        "noam": noam(training.warmup),
        "constant": constant(training.warmup),
    }
    return LambdaLR(optimiser, curves[training.schedule])


def cosine(warmup: int, steps: int, least: float = 0.0) -> Share:
    """Up in a line, down along half a cosine to `least` of the rate at `steps`.

    >>> curve = cosine(10, 110)
    >>> [round(curve(step), 2) for step in (0, 9, 60, 110)]
    [0.1, 1.0, 0.5, 0.0]
    """

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return least + (1 - least) * (1 + math.cos(math.pi * done)) / 2

    return share


def noam(warmup: int) -> Share:
    """Up in a line, then down as 1/√step: https://arxiv.org/abs/1706.03762, with 1 at the top.

    >>> curve = noam(100)
    >>> [round(curve(step), 2) for step in (0, 99, 399)]
    [0.01, 1.0, 0.5]
    """
    top = max(warmup, 1)
    return lambda step: min((step + 1) / top, math.sqrt(top / (step + 1)))


def constant(warmup: int) -> Share:
    """Up in a line, then the same."""
    return lambda step: min((step + 1) / max(warmup, 1), 1.0)
