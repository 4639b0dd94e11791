"""The Transformer for translation: the zoo's, pre-norm, with one vocabulary for both languages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.decode import CachedDecoder, beam
from edgewise.inputs.kinds import numbers
from edgewise.language import R
from edgewise.language.program import Program
from edgewise.training.models.classifier import mask_of
from edgewise.training.schema import number
from edgewise.zoo import transformer

LENGTH_FACTOR = 2  # translations may be this much longer than the longest training sentence


@dataclass(frozen=True)
class Translator:
    """`tied`: input embeddings and output projection share one table."""

    layers: int = number(least=1)
    heads: int = number(least=1)
    size: int = number(least=2)
    hidden: int = number(least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)
    tied: bool = False

    def check(self) -> Iterator[tuple[str, str, str]]:
        if self.size % self.heads:
            what = f"size {self.size} is not divisible by {self.heads} heads"
            yield "heads", what, f"choose a divisor of {self.size}"
        if self.size % 2:
            yield "size", f"{self.size} is odd", "positions are pairs of sine and cosine"

    def build(self, words: int, corpus: Any, seed: int) -> TranslatorModel:
        return TranslatorModel(self, words, LENGTH_FACTOR * corpus.longest, seed)


def program(config: Translator, words: int, longest: int) -> Program:
    """Reads `source(i)`, `mask(i)` and `target(i)`, derives `logits(i)`."""
    return transformer.program(
        transformer.Config(
            vocabulary=words,
            size=config.size,
            heads=config.heads,
            hidden=config.hidden,
            layers=config.layers,
            decoder_layers=config.layers,
            length=longest,
            norm="pre",
            dropout=config.dropout,
            tied=config.tied,
        )
    )


class TranslatorModel(nn.Module):
    """The compiled program: source and target so far → logits of the next token."""

    def __init__(self, config: Translator, words: int, longest: int, seed: int) -> None:
        super().__init__()
        self.words, self.longest = words, longest
        self.program = program(config, words, longest).compile(R.logits, seed=seed)
        _initialise(self.program, seed)

    def forward(self, source: Tensor, lengths: Tensor, token: Tensor) -> Tensor:
        mask = mask_of(source, lengths, self.program.weight("word").dtype)
        inputs = {"source": numbers(source), "target": numbers(token), "mask": mask}
        out: Tensor = self.program(**inputs)
        return out

    def translate(
        self, source: Tensor, lengths: Tensor, *, start: int, stop: int, beams: int, alpha: float
    ) -> Tensor:
        """The best translations (batch, n), found by beam search."""
        mask = mask_of(source, lengths, self.program.weight("word").dtype)
        growing = self.program.growing(self.longest, source=numbers(source), mask=mask)
        first = torch.full((len(source), 1), start, device=source.device)
        decoder = CachedDecoder(growing, "target")
        most = self.longest - 1
        return beam(decoder, first, beams=beams, most=most, stop=stop, alpha=alpha)[0]


@torch.no_grad()
def _initialise(model: nn.Module, seed: int) -> None:
    """Xavier's uniform for matrices, a normal of 1/√d for the table; biases 0, gains 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
        elif name == "word":
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5)
        elif name.endswith("weight"):
            rows, columns = math.prod(weight.shape[:-1]), weight.shape[-1]
            bound = math.sqrt(6 / (rows + columns))
            weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * bound)
