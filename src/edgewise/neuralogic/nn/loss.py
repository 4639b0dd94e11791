"""Errors of outputs: what is reported for a query, and what is descended."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import caller
from edgewise.neuralogic.errors import BadSetting


class ErrorFunction:
    """The error of a query; what is descended is their mean over all elements, or their sum.

    >>> value, target = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])
    >>> MSE().output(value).tolist(), MSE().error(value, target).item()
    ([1.0, 2.0], 5.0)
    >>> MSE("sum").descended(value, target).item()
    5.0
    """

    name = ""

    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in ("mean", "sum"):
            raise BadSetting(
                f"reduction is `mean` or `sum`, got {reduction!r}", caller(), "write `MSE()`"
            )
        self.reduction = reduction

    def output(self, value: Tensor) -> Tensor:
        """What the model gives for a query."""
        return value

    def error(self, value: Tensor, target: Tensor) -> Tensor:
        """The error of one query, summed over its elements."""
        raise NotImplementedError

    def descended(self, value: Tensor, target: Tensor) -> Tensor:
        """What gradients are taken of."""
        return self.error(value, target)

    def __str__(self) -> str:
        return self.name


class MSE(ErrorFunction):
    """The squared difference.

    >>> MSE().error(torch.tensor(3.0), torch.tensor(1.0)).item()
    4.0
    """

    name = "SQUARED_DIFF"

    def error(self, value: Tensor, target: Tensor) -> Tensor:
        return (value - target).square().sum()


class SoftEntropy(ErrorFunction):
    """The cross-entropy of outputs that are logits.

    >>> round(SoftEntropy().error(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])).item(), 4)
    0.6931
    """

    name = "SOFTENTROPY"

    def error(self, value: Tensor, target: Tensor) -> Tensor:
        if value.numel() == 1:
            return functional.binary_cross_entropy_with_logits(value, target, reduction="sum")
        return -(target * functional.log_softmax(value.flatten(), 0).reshape(value.shape)).sum()


class CrossEntropy(SoftEntropy):
    """Cross-entropy; without logits the output is a probability.

    PyNeuraLogic descends the binary cross-entropy of every class then, and so does this.

    >>> CrossEntropy(with_logits=False).output(torch.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, with_logits: bool = True, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.with_logits = with_logits
        self.name = "SOFTENTROPY" if with_logits else "CROSSENTROPY"

    def output(self, value: Tensor) -> Tensor:
        if self.with_logits:
            return value
        if value.numel() == 1:
            return torch.sigmoid(value)
        return torch.softmax(value.flatten(), 0).reshape(value.shape)

    def descended(self, value: Tensor, target: Tensor) -> Tensor:
        if self.with_logits or value.numel() == 1:
            return self.error(value, target)
        probability = self.output(value).clamp(1e-12, 1 - 1e-12)
        return functional.binary_cross_entropy(probability, target, reduction="sum")


__all__ = ["MSE", "CrossEntropy", "ErrorFunction", "SoftEntropy"]
