"""Tokens that were hidden, from all the others."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgewise.training.data.characters import Characters
from edgewise.training.draws import generator
from edgewise.training.models.encoder import Encoder
from edgewise.training.objectives.average import Average
from edgewise.training.schema import number

NOT_ASKED = -100


@dataclass(frozen=True)
class Masked:
    """-log p(xₜ | the rest) at a `share` of the places.

    Of those, 8 in 10 show one more token, the mask; 1 in 10 a random one; the rest stay:
    https://arxiv.org/abs/1810.04805.
    """

    share: float = number(0.15, least=0.0, below=1.0)
    data: ClassVar = (Characters,)
    model: ClassVar = (Encoder,)

    def words(self, corpus: Any) -> int:
        return int(corpus.words) + 1  # the mask is the last one

    def loss(self, model: nn.Module, batch: dict[str, Tensor], seed: int) -> Tensor:
        shown, asked = self.hidden(batch["token"], _mask(model), seed)
        return cross_entropy(model(shown).flatten(0, 1), asked.flatten(), ignore_index=NOT_ASKED)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        token = batch["token"]
        shown, asked = self.hidden(token, _mask(model), 0)
        logits, asked = model(shown).flatten(0, 1).float(), asked.flatten()
        count = int((asked != NOT_ASKED).sum())
        if count:
            found.add("loss", cross_entropy(logits, asked, ignore_index=NOT_ASKED), count)
            right = (logits.argmax(1) == asked).sum() / count
            found.add("accuracy", right, count)

    def hidden(self, token: Tensor, mask: int, seed: int) -> tuple[Tensor, Tensor]:
        """What is shown, and what is asked for: the token itself, or `NOT_ASKED`."""
        draws = generator(seed, "mask")
        chance, kind = torch.rand((2, *token.shape), generator=draws).to(token.device)
        other = torch.randint(max(mask, 1), token.shape, generator=draws).to(token.device)
        chosen = chance < self.share
        shown = torch.where(chosen & (kind < 0.8), mask, token)
        shown = torch.where(chosen & (kind >= 0.9), other, shown)
        return shown, torch.where(chosen, token, NOT_ASKED)

    def finish(self, model: nn.Module, corpus: Any, device: torch.device) -> dict[str, Any]:
        return {}


def _mask(model: Any) -> int:
    return int(model.words) - 1
