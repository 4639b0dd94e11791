"""The recurrent encoder–decoder that the Transformer replaced, with or without attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.decode import Again, beam
from edgewise.ground.inputs import numbers
from edgewise.language import R
from edgewise.training.models.classifier import mask_of
from edgewise.training.schema import number, one_of
from edgewise.zoo import rnn

ROOM = 2


@dataclass(frozen=True)
class Recurrent:
    """`attention` is Luong's score: dot, general or concat; or none."""

    size: int = number(least=1)
    attention: str = one_of("general", *rnn.SCORES)
    dropout: float = number(0.0, least=0.0, below=1.0)

    def build(self, words: int, corpus: Any, seed: int) -> Narrator:
        return Narrator(self, words, ROOM * corpus.longest, seed)


class Narrator(nn.Module):
    """The compiled program, from sentences and what is written so far to logits."""

    def __init__(self, config: Recurrent, words: int, longest: int, seed: int) -> None:
        super().__init__()
        self.words, self.longest = words, longest
        sizes = rnn.Config(
            source_words=words,
            target_words=words,
            size=config.size,
            attention=config.attention,
            dropout=config.dropout,
        )
        self.program = rnn.program(sizes).compile(R.logits, seed=seed)
        _initialise(self.program, config.size, seed)

    def forward(self, source: Tensor, lengths: Tensor, token: Tensor) -> Tensor:
        out: Tensor = self.program(target=numbers(token), **self._read(source, lengths))
        return out

    def translate(
        self, source: Tensor, lengths: Tensor, *, start: int, stop: int, beams: int, alpha: float
    ) -> Tensor:
        """The best translations (batch, n), found by beam search."""
        again = Again(self.program, "target", self.longest, **self._read(source, lengths))
        first = torch.full((len(source), 1), start, device=source.device)
        most = self.longest - 1
        return beam(again, first, beams=beams, most=most, stop=stop, alpha=alpha)[0]

    def _read(self, source: Tensor, lengths: Tensor) -> dict[str, Any]:
        """A sentence, where it has tokens, and where the last one is."""
        mask = mask_of(source, lengths, self.program.weight("source_word").dtype)
        end = mask - mask_of(source, lengths - 1, mask.dtype)
        given = {"source": numbers(source), "mask": mask, "end": end}
        return {name: item for name, item in given.items() if name in self.program.inputs}


@torch.no_grad()
def _initialise(model: nn.Module, size: int, seed: int) -> None:
    """Uniform within 1/√d, as torch's recurrent layers; biases 0."""
    generator = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(size)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
        else:
            weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * bound)
