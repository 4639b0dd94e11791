"""Language models of recipes: GPT, which predicts the next token, and an encoder for masked ones.

GPT has the sizes, initial values and the tied table of tokens of GPT-2
(https://openai.com/index/better-language-models); the encoder is the zoo's pre-norm encoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgewise.graphs import Pattern, causal, parse
from edgewise.inputs.kinds import numbers
from edgewise.language import F, Program, R, V, W, repeat, scope
from edgewise.language.nodes import Atom
from edgewise.module import Model
from edgewise.training.schema import Mistakes, check_heads, check_patterns, number
from edgewise.zoo import encoder, gpt2
from edgewise.zoo.parts import Statements, dropped, layer_norm, linear, pre_norm

STD = 0.02


@dataclass(frozen=True)
class Gpt:
    """`dropout` applies to rows, `attention_dropout` to attention weights.

    `graphs` has one pattern, or several among which the heads are divided evenly; each is
    intersected with `causal()`.
    """

    layers: int = number(least=1)
    heads: int = number(least=1)
    size: int = number(least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)
    attention_dropout: float = number(0.0, least=0.0, below=1.0)
    graphs: list = field(default_factory=lambda: ["causal()"])

    def check(self) -> Mistakes:
        yield from check_heads(self.size, self.heads)
        yield from check_patterns("graphs", self.graphs)
        if not self.graphs or self.heads % len(self.graphs):
            what = f"{self.heads} heads cannot be divided among {len(self.graphs)} graphs"
            yield "graphs", what, f"give a number of graphs that divides {self.heads}"

    def build(self, words: int, corpus: Any, seed: int) -> LanguageModel:
        compiled = self.program(words, corpus.context).compile(R.logits, seed=seed)
        initialise(compiled, self.layers, seed)
        return self.module(compiled, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> LanguageModel:
        """The module around a compiled program."""
        return LanguageModel(program, words, corpus.context)

    def patterns(self) -> list[Pattern]:
        found = [parse(text) for text in self.graphs]
        return [p if p == causal() else p & causal() for p in found if isinstance(p, Pattern)]

    def program(self, words: int, context: int) -> Program:
        """Reads `token(i)`, derives `logits(i)`, a score for each word."""
        sizes = gpt2.Config(
            words, self.size, heads=self.heads, layers=self.layers, dropout=self.dropout
        )
        stack = repeat(lambda x: _layer(x, self), self.layers)(R.x)
        return Program(
            [*gpt2.embeddings(R.x, sizes), stack, *gpt2.readout(stack.out, sizes)],
            domains={V.I: context, V.T: 3, V.H: self.heads // len(self.graphs)},
        )


def _layer(x: Atom, config: Gpt) -> Statements:
    """The layer of GPT-2, with heads in groups that have a graph each."""
    d, attends = config.size, _attention(R.norm1, R.heads, config)
    return pre_norm(x, attends, R.out, d, 4 * d, activation=F.gelu, p=config.dropout)


def _attention(x: Atom, y: Atom, config: Gpt) -> Statements:
    """The groups of heads, concatenated."""
    rules: Statements = []
    groups = []
    for g, graph in enumerate(config.patterns()):
        group = R[f"group{g}_out"]
        rules += scope(f"group{g}")(_group(x, graph, config))
        rules.append((group(V.I) <= R[f"group{g}.context"](V.H, V.I)) | [F.concat_agg])
        groups.append(group(V.I))
    return [*rules, (y(V.I) <= tuple(groups)) | [F.concat]]


def _group(x: Atom, graph: Pattern, config: Gpt) -> Statements:
    """Heads that attend along one graph; one matrix gives queries (0), keys (1) and values (2)."""
    size, d = config.size, config.size // config.heads
    matrix, bias = W["qkv.weight"](V.T, V.H)[d, size], W["qkv.bias"](V.T, V.H)[d,]
    query = R.qkv(0, V.H, V.I)[1 / math.sqrt(d)].fixed()
    weights = dropped(R.weights(V.H, V.I, V.J), config.attention_dropout)
    return [
        R.qkv(V.T, V.H, V.I) <= (x(V.I)[matrix], bias),
        (R.weights(V.H, V.I, V.J) <= (R.qkv(1, V.H, V.J).T @ query, graph(V.I, V.J)))
        | [F.softmax_agg(agg_terms=[V.J])],
        (R.context(V.H, V.I) <= (weights, R.qkv(2, V.H, V.J))) | [F.product],
    ]


@dataclass(frozen=True)
class Encoder:
    """`graph`: the pairs that attend to each other."""

    layers: int = number(least=1)
    heads: int = number(least=1)
    size: int = number(least=1)
    hidden: int = number(least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)
    graph: str = "full()"

    states: ClassVar = "final"  # what `embed` takes the mean of

    def check(self) -> Mistakes:
        yield from check_heads(self.size, self.heads)
        yield from check_patterns("graph", [self.graph])

    def build(self, words: int, corpus: Any, seed: int) -> LanguageModel:
        compiled = self.program(words, corpus.context).compile(R.logits, seed=seed)
        initialise(compiled, self.layers, seed)
        return self.module(compiled, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> LanguageModel:
        """The module around a compiled program."""
        return LanguageModel(program, words, corpus.context)

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

    def program(self, words: int, context: int) -> Program:
        """Reads `token(i)`, derives `logits(i)`, a score for each word."""
        d = self.size
        embedded = F.lookup(W.word[words, d], R.token(V.I)) + W.place(V.I)[d,]
        stack = repeat(lambda x: encoder.layer(x, self.rules), self.layers)(R.embedded)
        return Program(
            [
                R.embedded(V.I) <= dropped(embedded, self.dropout),
                stack,
                *layer_norm(stack.out, R.final, d),
                *linear(R.final, R.logits, d, words),
            ],
            domains={V.I: context, V.H: self.heads},
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
