"""A small Transformer encoder that gives a sentence its class: the mean of its rows, read out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.ground.inputs import numbers
from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom
from edgewise.training.models.blocks import attention
from edgewise.training.models.gpt import initialise
from edgewise.training.schema import number
from edgewise.zoo.parts import Statements, affine, dropped, feed_forward, layer_norm, residual

FAR = -1e4  # exp(FAR) is 0 in every precision


@dataclass(frozen=True)
class Classifier:
    layers: int = number(least=1)
    heads: int = number(least=1)
    size: int = number(least=1)
    hidden: int = number(least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)

    def check(self) -> Iterator[tuple[str, str, str]]:
        if self.size % self.heads:
            what = f"{self.size} numbers cannot be shared out among {self.heads} heads"
            yield "heads", what, f"choose a divisor of {self.size}"

    def build(self, words: int, corpus: Any, seed: int) -> Sorter:
        return Sorter(self, words, corpus.longest, corpus.classes, seed)


def program(config: Classifier, words: int, longest: int, classes: int) -> Program:
    """Reads `token(i)`, `padding(i)` and `share(i)`, derives `logits`: a number for each class."""
    d, p = config.size, config.dropout
    embedded = F.lookup(W.word[words, d], R.token(V.I)) + W.place(V.I)[d,]
    stack = repeat(lambda x: layer(x, R.padding, config), config.layers)(R.embedded)
    return Program(
        [
            R.embedded(V.I) <= dropped(embedded, p),
            stack,
            *layer_norm(stack.out, R.final, d),
            (R.mean <= (R.share(V.I), R.final(V.I))) | [F.product],
            R.logits <= affine(dropped(R.mean, p), "logits", d, classes),
        ],
        domains={V.I: longest, V.H: config.heads},
    )


def layer(x: Atom, padding: Atom, config: Any) -> Statements:
    """Attention to every token and a hidden layer, each added to the rows it read, norms first."""
    d, p = config.size, config.dropout
    return [
        *layer_norm(x, R.norm1, d),
        *attention(R.norm1, R.norm1, R.heads, size=d, d=d // config.heads, padding=padding, p=p),
        *residual(x, R.heads, R.attended, d, d, p),
        *layer_norm(R.attended, R.norm2, d),
        *feed_forward(R.norm2, R.mlp, d, config.hidden, activation=F.gelu, p=p),
        *residual(R.attended, R.mlp, R.out, config.hidden, d, p),
    ]


class Sorter(nn.Module):
    """The compiled program, from numbers of words and lengths to logits (batch, classes)."""

    def __init__(
        self, config: Classifier, words: int, longest: int, classes: int, seed: int
    ) -> None:
        super().__init__()
        self.words = words
        self.program = program(config, words, longest, classes).compile(R.logits, seed=seed)
        initialise(self.program, config.layers, seed)

    def forward(self, token: Tensor, lengths: Tensor) -> Tensor:
        real, padding = real_and_padding(token, lengths, self.program.weight("word").dtype)
        share = (real / real.sum(1, keepdim=True).clamp_min(1))[..., None]
        out: Tensor = self.program(token=numbers(token), padding=padding, share=share)
        return out


def real_and_padding(token: Tensor, lengths: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """1 at tokens, and what is added to scores of keys: 0 at tokens, far below at padding."""
    real = (torch.arange(token.shape[1], device=token.device) < lengths[:, None]).to(dtype)
    return real, ((1 - real) * FAR)[..., None]
