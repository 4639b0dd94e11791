"""The class of a sentence."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgewise.training.data.labelled import Labelled
from edgewise.training.models.classifier import Classifier
from edgewise.training.objectives.average import Average
from edgewise.training.schema import number


@dataclass(frozen=True)
class Classification:
    """-log p(class | words), the mean over sentences; measured by how many are right."""

    smoothing: float = number(0.0, least=0.0, below=1.0)
    data: ClassVar = (Labelled,)
    model: ClassVar = (Classifier,)

    def words(self, corpus: Any) -> int:
        return int(corpus.words)

    def loss(self, model: nn.Module, batch: dict[str, Tensor], seed: int) -> Tensor:
        logits = model(batch["token"], batch["lengths"])
        return cross_entropy(logits, batch["label"], label_smoothing=self.smoothing)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        logits, label = model(batch["token"], batch["lengths"]).float(), batch["label"]
        found.add("loss", cross_entropy(logits, label), len(label))
        found.add("accuracy", (logits.argmax(1) == label).float().mean(), len(label))

    def finish(self, model: nn.Module, corpus: Any, device: torch.device) -> dict[str, Any]:
        """Accuracy on the test part, once, at the end."""
        found = Average()
        for batch in corpus.validation(64, "test"):
            self.measure(model, {name: t.to(device) for name, t in batch.items()}, found)
        return {f"test {name}": value for name, value in found.means().items()}
