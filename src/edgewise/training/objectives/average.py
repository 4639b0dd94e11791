"""Means of measures over batches of different sizes."""

from torch import Tensor


class Average:
    """Sums of measures and of what they count.

    >>> import torch
    >>> found = Average()
    >>> found.add("loss", torch.tensor(1.0), 3)
    >>> found.add("loss", torch.tensor(5.0), 1)
    >>> found.means()
    {'loss': 2.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, mean: Tensor, count: int) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + mean.item() * count
        self._counts[name] = self._counts.get(name, 0) + count

    def means(self) -> dict[str, float]:
        return {name: self._sums[name] / max(self._counts[name], 1) for name in self._sums}
