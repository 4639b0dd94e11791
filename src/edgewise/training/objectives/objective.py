"""What an objective of a run is, and the measures of a model over batches."""

import json
from typing import Any, ClassVar

import safetensors.torch
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
        """The mean of `count` numbers; that of none, which is not a number, does not count."""
        if not count:
            return
        self._sums[name] = self._sums.get(name, 0.0) + mean.item() * count
        self._counts[name] = self._counts.get(name, 0) + count

    def add_scores(self, name: str, scores: Tensor, label: Tensor) -> None:
        """Scores of examples that are 0 or 1: their ROC-AUC is of all batches together."""
        self._scores.setdefault(name, []).append((scores.cpu(), label.cpu()))

    def packed(self) -> bytes:
        """All of it as bytes, for another rank."""
        scores = {
            f"{name}/{side}": torch.cat([part[at].double() for part in parts])
            for name, parts in self._scores.items()
            for at, side in enumerate(("scores", "labels"))
        }
        header = json.dumps([self._sums, self._counts, list(self._scores)])
        return safetensors.torch.save(scores, metadata={"sums": header})

    def unpack(self, data: bytes) -> None:
        """Add what another rank found."""
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])["__metadata__"]["sums"]
        sums, counts, names = json.loads(header)
        scores = safetensors.torch.load(data)
        for name, total in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + total
            self._counts[name] = self._counts.get(name, 0) + counts[name]
        for name in names:
            self.add_scores(name, scores[f"{name}/scores"], scores[f"{name}/labels"])

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

    `task` is the verb of the command that a trained model is for. `tested`: the test part is
    measured at the end.
    """

    task: ClassVar[str]
    tested: ClassVar[bool] = True

    @property
    def passes_once(self) -> bool:
        """Whether a loss and a measure are one call of the model each, whatever the batch."""
        return True

    def words(self, corpus: Any) -> int:
        """The size of the vocabulary."""
        return int(corpus.words)

    def tokenizer(self, corpus: Any) -> Any:
        """The tokenizer of the model."""
        return corpus.tokenizer

    def drawn(self, batch: dict[str, Tensor], corpus: Any, seed: int) -> dict[str, Tensor]:
        """The batch with what is drawn at random for it, such as masks: before ranks share it."""
        return batch

    def terms(self, batch: dict[str, Tensor]) -> int:
        """How many numbers the loss of a batch is the mean of."""
        return len(batch["label"])

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        raise NotImplementedError

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        raise NotImplementedError

    def finish(self, model: nn.Module, corpus: Any, device: torch.device) -> dict[str, Any]:
        """What is computed once at the end, beside the measures of the test part."""
        return {}


def widened(x: Tensor) -> Tensor:
    """In float32 at least, for measures."""
    return x if x.dtype == torch.float64 else x.float()
