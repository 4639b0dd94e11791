"""Learning rates that decay from epoch to epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgewise.errors import caller
from edgewise.neuralogic.errors import BadSetting

if TYPE_CHECKING:
    from edgewise.neuralogic.nn.optim import Optimizer


class LRDecay:
    """Changes the learning rate of the optimiser that it is attached to.

    >>> from edgewise.neuralogic.nn.optim import SGD
    >>> decay = GeometricLR(0.5, 1)
    >>> optimizer = SGD(0.1, lr_decay=decay)
    >>> decay.decay(1)
    >>> optimizer.lr
    0.05
    """

    def __init__(self) -> None:
        self._optimizer: Optimizer | None = None
        self._first = 0.0

    def attach(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._first = optimizer.lr

    def decay(self, epoch: int) -> None:
        """The learning rate after `epoch` epochs."""
        if self._optimizer is None:
            raise BadSetting(
                "the decay has no optimiser", caller(), "write `SGD(0.1, lr_decay=decay)`"
            )
        self._optimizer.lr = self._next(self._optimizer.lr, epoch)

    def restart(self) -> None:
        if self._optimizer is not None:
            self._optimizer.lr = self._first

    def _next(self, lr: float, epoch: int) -> float:
        raise NotImplementedError


class ArithmeticLR(LRDecay):
    """The same amount less at every epoch, 0 after `max_steps`.

    >>> from edgewise.neuralogic.nn.optim import SGD
    >>> print(SGD(0.1, lr_decay=ArithmeticLR(100)))
    SGD(lr=0.1, weight_decay=0.0, lr_decay=ArithmeticLR(max_steps=100))
    """

    def __init__(self, max_steps: int) -> None:
        super().__init__()
        if not isinstance(max_steps, int) or max_steps < 1:
            raise BadSetting(f"max_steps is {max_steps!r}", caller(), "write a positive integer")
        self.max_steps = max_steps

    def _next(self, lr: float, epoch: int) -> float:
        return lr - self._first / self.max_steps

    def __str__(self) -> str:
        return f"ArithmeticLR(max_steps={self.max_steps})"


class GeometricLR(LRDecay):
    """Times `decay_rate` after every `steps` epochs.

    >>> from edgewise.neuralogic.nn.optim import SGD
    >>> print(SGD(0.1, lr_decay=GeometricLR(0.5, 10)))
    SGD(lr=0.1, weight_decay=0.0, lr_decay=GeometricLR(decay_rate=0.5, steps=10))
    """

    def __init__(self, decay_rate: float, steps: int) -> None:
        super().__init__()
        if not isinstance(steps, int) or steps < 1:
            raise BadSetting(f"steps is {steps!r}", caller(), "write a positive integer")
        self.decay_rate = decay_rate
        self.steps = steps

    def _next(self, lr: float, epoch: int) -> float:
        return lr * self.decay_rate if epoch % self.steps == 0 else lr

    def __str__(self) -> str:
        return f"GeometricLR(decay_rate={self.decay_rate}, steps={self.steps})"


__all__ = ["ArithmeticLR", "GeometricLR", "LRDecay"]
