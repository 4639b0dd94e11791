"""A Transformer encoder that classifies sentences: a readout of the mean row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgewise.inputs.kinds import numbers
from edgewise.language import F, Program, R, V
from edgewise.module import Model
from edgewise.training.models.language import initialise
from edgewise.training.models.transformer import Transformer, stack_sizes
from edgewise.training.schema import number
from edgewise.zoo import layers, transformer
from edgewise.zoo.parts import affine, dropped, present


@dataclass(frozen=True, kw_only=True)
class Classifier(Transformer):
    hidden: int = number(least=1)

    states: ClassVar = "encoder.out"  # what `embed` takes the mean of

    def sizes(self, words: int, length: int) -> transformer.Config:
        return stack_sizes(self, words, length)

    def build(self, words: int, corpus: Any, seed: int) -> ClassifierModel:
        rules = program(self, words, corpus.longest, corpus.classes)
        compiled = rules.compile(R.logits, seed=seed)
        initialise(compiled, self.layers, seed)
        return self.module(compiled, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> ClassifierModel:
        """The module around a compiled program."""
        return ClassifierModel(program, words)


def program(config: Classifier, words: int, longest: int, classes: int) -> Program:
    """Reads `token(i)`, `mask(i)` and `share(i)`, derives `logits`, a score for each class."""
    d, sizes = config.size, config.sizes(words, longest)
    return Program(
        [
            *transformer.embedded(R.token, R.x, sizes),
            *present(R.mask, R.present),
            *transformer.stacked("encoder", R.x, config.layers, sizes),
            (R.mean <= (R.share(V.I), R["encoder.out"](V.I))) | [F.product],
            R.logits <= affine(dropped(R.mean, config.dropout), "logits", d, classes),
        ],
        domains=layers.domains(sizes),
    )


class ClassifierModel(nn.Module):
    """The compiled program: token ids and lengths → logits (batch, classes)."""

    def __init__(self, program: Model, words: int) -> None:
        super().__init__()
        self.words = words
        self.program = program

    def forward(self, token: Tensor, lengths: Tensor) -> Tensor:
        mask = mask_of(token, lengths, self.program.weight("word").dtype)
        share = mask / mask.sum(1, keepdim=True).clamp_min(1)
        out: Tensor = self.program(token=numbers(token), mask=mask, share=share)
        return out


def mask_of(token: Tensor, lengths: Tensor, dtype: torch.dtype) -> Tensor:
    """1 at tokens, 0 at padding: (batch, n, 1)."""
    places = torch.arange(token.shape[1], device=token.device)
    return (places < lengths[:, None]).to(dtype)[..., None]
