"""Initial values of weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.neuralogic.errors import BadSetting

Shape = tuple[int, ...]


class Initializer:
    """Draws a weight of a shape; a vector consumes one number, a row all of its columns.

    >>> print(Uniform(1.0), Normal(), Glorot())
    UNIFORM NORMAL GLOROT
    """

    name = ""

    def __init__(self, scale: float = 2.0) -> None:
        if not isinstance(scale, int | float) or isinstance(scale, bool) or not scale > 0:
            raise BadSetting(
                f"a scale is a positive number, got {scale!r}", caller(), "write `Uniform(2.0)`"
            )
        self.scale = scale

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name


def fans(shape: Shape) -> tuple[int, int]:
    """The numbers that a weight consumes and gives."""
    if len(shape) == 2:
        return shape[1], shape[0]
    return 1, shape[0] if shape else 1


def uniform(shape: Shape, bound: float, generator: torch.Generator) -> Tensor:
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (2 * drawn - 1) * bound


class Uniform(Initializer):
    """Uniform in [−scale/2, scale/2].

    >>> values = Uniform(2.0).draw((1000,), torch.Generator().manual_seed(0))
    >>> bool(values.abs().max() <= 1.0)
    True
    """

    name = "UNIFORM"

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        return uniform(shape, self.scale / 2, generator)


class Normal(Initializer):
    """Normal, with the standard deviation 2.

    >>> values = Normal().draw((100_000,), torch.Generator().manual_seed(0))
    >>> round(values.std().item(), 1)
    2.0
    """

    name = "NORMAL"

    def __init__(self) -> None:
        super().__init__()

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        return 2 * torch.randn(shape, generator=generator, dtype=torch.float64)


class ConstantInitializer(Initializer):
    """Every element is `value`.

    >>> ConstantInitializer(0.5).draw((2,), torch.Generator()).tolist()
    [0.5, 0.5]
    """

    name = "CONSTANT"

    def __init__(self, value: float = 0.1) -> None:
        super().__init__()
        self.value = float(value)

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        return torch.full(shape, self.value, dtype=torch.float64)


class Longtail(Initializer):
    """x·|x| of a standard normal x.

    >>> tuple(Longtail().draw((2, 3), torch.Generator().manual_seed(0)).shape)
    (2, 3)
    """

    name = "LONGTAIL"

    def __init__(self) -> None:
        super().__init__()

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return drawn * drawn.abs()


class Glorot(Initializer):
    """Uniform, with the variance 2 / (fan in + fan out) at scale 2.

    >>> values = Glorot().draw((2, 4), torch.Generator().manual_seed(0))
    >>> bool(values.abs().max() <= 1.0)
    True
    """

    name = "GLOROT"

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        return uniform(shape, self.scale / 2 * math.sqrt(6 / sum(fans(shape))), generator)


class He(Initializer):
    """Uniform, with the variance 2 / fan in at scale 2.

    >>> values = He().draw((2, 6), torch.Generator().manual_seed(0))
    >>> bool(values.abs().max() <= 1.0)
    True
    """

    name = "HE"

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        return uniform(shape, self.scale / 2 * math.sqrt(6 / fans(shape)[0]), generator)


class TorchInitializer(Initializer):
    """Uniform in ±1/√(fan in), as the layers of PyTorch draw their weights.

    >>> values = TorchInitializer().draw((2, 4), torch.Generator().manual_seed(0))
    >>> bool(values.abs().max() <= 0.5)
    True
    """

    name = "TORCH"

    def __init__(self) -> None:
        super().__init__()

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        return uniform(shape, 1 / math.sqrt(fans(shape)[0]), generator)


Constant = ConstantInitializer
Torch = TorchInitializer

__all__ = [
    "Constant",
    "Glorot",
    "He",
    "Initializer",
    "Longtail",
    "Normal",
    "Torch",
    "Uniform",
]
