"""An encoder that predicts masked tokens: embeddings, the zoo's pre-norm encoder, a readout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from edgewise.errors import EdgewiseError
from edgewise.graphs import Pattern, parse
from edgewise.inputs.kinds import numbers
from edgewise.language import F, Program, R, V, W, repeat
from edgewise.training.models.gpt import initialise
from edgewise.training.schema import number
from edgewise.zoo import encoder
from edgewise.zoo.parts import dropped, layer_norm, linear


@dataclass(frozen=True)
class Encoder:
    layers: int = number(least=1)
    heads: int = number(least=1)
    size: int = number(least=1)
    hidden: int = number(least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)
    graph: str = "full()"

    def check(self) -> Iterator[tuple[str, str, str]]:
        if self.size % self.heads:
            what = f"size {self.size} is not divisible by {self.heads} heads"
            yield "heads", what, f"choose a divisor of {self.size}"
        try:
            found = parse(self.graph)
        except EdgewiseError as error:
            yield "graph", error.message, error.help
        else:
            if not isinstance(found, Pattern):
                yield "graph", f"`{self.graph}` is not one pattern", "give one pattern"

    def build(self, words: int, corpus: Any, seed: int) -> EncoderModel:
        return EncoderModel(self, words, corpus.context, seed)

    @property
    def rules(self) -> encoder.Config:
        graph = parse(self.graph)
        assert isinstance(graph, Pattern)
        return encoder.Config(
            size=self.size,
            heads=self.heads,
            hidden=self.hidden,
            layers=self.layers,
            activation=F.gelu,
            dropout=self.dropout,
            where=() if self.graph == "full()" else (graph(V.I, V.J),),
        )


def program(config: Encoder, words: int, context: int) -> Program:
    """Reads `token(i)`, derives `logits(i)`, a score for each word."""
    d, p = config.size, config.dropout
    embedded = F.lookup(W.word[words, d], R.token(V.I)) + W.place(V.I)[d,]
    stack = repeat(lambda x: encoder.layer(x, config.rules), config.layers)(R.embedded)
    return Program(
        [
            R.embedded(V.I) <= dropped(embedded, p),
            stack,
            *layer_norm(stack.out, R.final, d),
            *linear(R.final, R.logits, d, words),
        ],
        domains={V.I: context, V.H: config.heads},
    )


class EncoderModel(nn.Module):
    """The compiled program: token ids → logits."""

    def __init__(self, config: Encoder, words: int, context: int, seed: int) -> None:
        super().__init__()
        self.words, self.context = words, context
        self.program = program(config, words, context).compile(R.logits, seed=seed)
        initialise(self.program, config.layers, seed)

    def forward(self, token: Tensor) -> Tensor:
        out: Tensor = self.program(token=numbers(token))
        return out
