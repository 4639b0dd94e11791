"""Optimisers, which are those of torch, and the decay of learning rates."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from edgewise.errors import caller
from edgewise.neuralogic.errors import BadSetting
from edgewise.neuralogic.nn.optim.lr_scheduler import LRDecay


class Optimizer:
    """A learning rate with its decay; `torch_optimiser` makes the optimiser of torch.

    >>> SGD(0.1).name(), SGD(0.1).lr
    ('SGD', 0.1)
    >>> SGD(0.1).torch_optimiser([]) is None
    True
    """

    def __init__(
        self, lr: float, lr_decay: LRDecay | None = None, weight_decay: float = 0.0
    ) -> None:
        for name, value in (("lr", lr), ("weight_decay", weight_decay)):
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
                raise BadSetting(
                    f"{name} is a number of at least 0, got {value!r}", caller(), "write `SGD(0.1)`"
                )
        self.lr = lr
        self.weight_decay = weight_decay
        self._lr_decay = lr_decay
        if lr_decay is not None:
            lr_decay.attach(self)

    def initialize(self) -> None:
        """Nothing is prepared: there is no other machine."""

    def name(self) -> str:
        return type(self).__name__

    def get_lr_decay(self) -> LRDecay | None:
        return self._lr_decay

    def torch_optimiser(
        self, parameters: Iterable[torch.nn.Parameter]
    ) -> torch.optim.Optimizer | None:
        """The optimiser of torch for these weights; None if there are none."""
        found = list(parameters)
        return self._made(found) if found else None

    def _made(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        raise NotImplementedError


class SGD(Optimizer):
    """Stochastic gradient descent.

    >>> from edgewise.neuralogic import Settings
    >>> print(Settings(optimizer=SGD(0.1)).optimizer)
    SGD(lr=0.1, weight_decay=0.0, lr_decay=None)
    """

    def __init__(
        self, lr: float = 0.1, lr_decay: LRDecay | None = None, weight_decay: float = 0.0
    ) -> None:
        super().__init__(lr, lr_decay, weight_decay)

    def _made(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr, weight_decay=self.weight_decay)

    def __str__(self) -> str:
        return f"SGD(lr={self.lr}, weight_decay={self.weight_decay}, lr_decay={self._lr_decay})"


class Adam(Optimizer):
    """Adam; its weight decay is an L2 penalty in the gradient.

    >>> from edgewise.neuralogic import Settings
    >>> print(Settings(optimizer=Adam(0.01)).optimizer)
    Adam(lr=0.01, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0, lr_decay=None)
    """

    def __init__(
        self,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        lr_decay: LRDecay | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr, lr_decay, weight_decay)
        self.betas = betas
        self.eps = eps

    def _made(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        options = {"lr": self.lr, "betas": self.betas, "eps": self.eps}
        return torch.optim.Adam(parameters, **options, weight_decay=self.weight_decay)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return (
            f"Adam(lr={self.lr}, betas={self.betas}, eps={self.eps}, "
            f"weight_decay={self.weight_decay}, lr_decay={self._lr_decay})"
        )


__all__ = ["SGD", "Adam", "Optimizer"]
