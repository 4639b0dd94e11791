"""What an objective of a run is, and the measures of a model over batches."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Average:
    """Weighted means of measures over batches.

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
        self._scores: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def add(self, name: str, mean: Tensor, count: int) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + mean.item() * count
        self._counts[name] = self._counts.get(name, 0) + count

    def add_scores(self, name: str, scores: Tensor, label: Tensor) -> None:
        """Scores of examples that are 0 or 1: their ROC-AUC is of all batches together."""
        self._scores.setdefault(name, []).append((scores.cpu(), label.cpu()))

    def means(self) -> dict[str, float]:
        found = {name: self._sums[name] / max(self._counts[name], 1) for name in self._sums}
        for name, parts in self._scores.items():
            area = roc_auc(*(torch.cat(side) for side in zip(*parts, strict=True)))
            found |= {} if area is None else {name: area}
        return found


def roc_auc(scores: Tensor, label: Tensor) -> float | None:
    """The share of pairs of a positive and a negative example in the right order; ties are half.

    None where all examples are of one class.

    >>> roc_auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
    0.75
    """
    order = scores.double().unique(return_inverse=True)[1]
    counts = torch.bincount(order)
    rank = (counts.cumsum(0) - (counts - 1) / 2)[order]  # from 1; of equal scores the mean
    positive = label.bool()
    many = int(positive.sum())
    pairs = many * (len(label) - many)
    return float((rank[positive].sum() - many * (many + 1) / 2) / pairs) if pairs else None


class Objective:
    """What all objectives share: the vocabulary is the corpus's, the test part is measured once.

    `task` is the verb of the command that a trained model is for.
    """

    task: ClassVar[str]

    def words(self, corpus: Any) -> int:
        """The size of the vocabulary."""
        return int(corpus.words)

    def tokenizer(self, corpus: Any) -> Any:
        """The tokenizer of the model."""
        return corpus.tokenizer

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        raise NotImplementedError

    def finish(self, model: nn.Module, corpus: Any, device: torch.device) -> dict[str, Any]:
        """What is measured once, at the end: the test part, if there is one."""
        found = Average()
        for batch in corpus.validation(64, "test") if "test" in corpus.parts else ():
            moved = getattr(corpus, "moved", batch)
            batch = {n: t.to(device) if n in moved else t for n, t in batch.items()}
            self.measure(model, batch, found)
        return {f"test {name}": value for name, value in found.means().items()}
