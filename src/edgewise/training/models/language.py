"""Language models of recipes: GPT, which predicts the next token, and an encoder for masked ones.

GPT has the sizes, initial values and the tied table of tokens of GPT-2
(https://openai.com/index/better-language-models); the encoder is the zoo's pre-norm encoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgewise.inputs.kinds import numbers
from edgewise.language import F, Program, R
from edgewise.module import Model
from edgewise.training.models.transformer import Transformer
from edgewise.training.schema import number
from edgewise.zoo import block, encoder, gpt2, layers
from edgewise.zoo.parts import linear

STD = 0.02


@dataclass(frozen=True, kw_only=True)
class LanguageTransformer(Transformer):
    """A Transformer that scores every word of the vocabulary at each position."""

    def build(self, words: int, corpus: Any, seed: int) -> LanguageModel:
        compiled = self.program(words, corpus.context).compile(R.logits, seed=seed)
        initialise(compiled, self.layers, seed)
        return self.module(compiled, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> LanguageModel:
        """The module around a compiled program."""
        return LanguageModel(program, words, corpus.context)

    def program(self, words: int, context: int) -> Program:
        """Reads `token(i)`, derives `logits(i)`, a score for each word."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Gpt(LanguageTransformer):
    """`dropout` applies to rows, `attention_dropout` to attention weights.

    A token attends to earlier ones of its graph; the hidden layer is 4 · size wide.
    """

    attention_dropout: float = number(0.0, least=0.0, below=1.0)

    def sizes(self, words: int, length: int) -> gpt2.Config:
        return gpt2.Config(
            words, self.size, self.heads, 4 * self.size, self.layers, length,
            activation=F.gelu, dropout=self.dropout, attention_dropout=self.attention_dropout,
            **self.layer_options(),
        )  # fmt: skip

    def program(self, words: int, context: int) -> Program:
        return gpt2.program(self.sizes(words, context))


@dataclass(frozen=True, kw_only=True)
class Encoder(LanguageTransformer):
    hidden: int = number(least=1)

    states: ClassVar = "final"  # what `embed` takes the mean of

    def sizes(self, words: int, length: int) -> gpt2.Config:
        return gpt2.Config(
            words, self.size, self.heads, self.hidden, self.layers, length,
            activation=F.gelu, dropout=self.dropout, **self.layer_options(),
        )  # fmt: skip

    def program(self, words: int, context: int) -> Program:
        config = self.sizes(words, context)
        stack, (last,) = block.stacked(
            lambda edges: lambda x: encoder.layer(x, config, edges),
            block.edges(config, self.layers),
            R.x,
        )
        return Program(
            [
                *gpt2.embeddings(R.x, config),
                *layers.positions(R.x, config),
                *stack,
                *layers.ended(last, R.final, config),
                *linear(R.final, R.logits, self.size, words),
            ],
            domains=layers.domains(config),
        )


class LanguageModel(nn.Module):
    """The compiled program: token ids → logits."""

    def __init__(self, program: Model, words: int, context: int) -> None:
        super().__init__()
        self.words, self.context = words, context
        self.program = program

    def forward(self, token: Tensor) -> Tensor:
        out: Tensor = self.program(token=numbers(token))
        return out


@torch.no_grad()
def initialise(model: nn.Module, layers: int, seed: int) -> None:
    """Normal of std 0.02, scaled down in residual branches; biases 0, gains 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
        elif not name.endswith("gain"):
            in_residual = name.endswith(("attended.weight", "out.weight"))
            std = STD / math.sqrt(2 * layers) if in_residual else STD
            weight.copy_(torch.randn(weight.shape, generator=generator) * std)
