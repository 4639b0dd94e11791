"""The next token, from those before it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgewise.training.data.characters import Characters
from edgewise.training.models.gpt import Gpt
from edgewise.training.objectives.average import Average
from edgewise.training.schema import number


@dataclass(frozen=True)
class Causal:
    """-log p(xₜ₊₁ | x₁ … xₜ), the mean over all tokens."""

    smoothing: float = number(0.0, least=0.0, below=1.0)
    data: ClassVar = (Characters,)
    model: ClassVar = (Gpt,)

    def words(self, corpus: Any) -> int:
        return int(corpus.words)

    def loss(self, model: nn.Module, batch: dict[str, Tensor], seed: int) -> Tensor:
        logits = model(batch["token"]).flatten(0, 1)
        return cross_entropy(logits, batch["next"].flatten(), label_smoothing=self.smoothing)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        logits = model(batch["token"]).flatten(0, 1).float()
        found.add("loss", cross_entropy(logits, batch["next"].flatten()), batch["next"].numel())

    def finish(self, model: nn.Module, corpus: Any, device: torch.device) -> dict[str, Any]:
        return {}
