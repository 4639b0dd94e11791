"""GPT: each token attends to those before it and predicts the next.

Sizes, initial values and the tied table of tokens are those of GPT-2
(https://openai.com/index/better-language-models).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import EdgewiseError
from edgewise.graphs import Pattern, causal, parse
from edgewise.inputs.kinds import numbers
from edgewise.language import F, Program, R, V, W, repeat, scope
from edgewise.language.nodes import Atom
from edgewise.training.schema import number
from edgewise.zoo import gpt2
from edgewise.zoo.parts import Statements, dropped, feed_forward, layer_norm, residual

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

    def check(self) -> Iterator[tuple[str, str, str]]:
        """Errors as (key, message, help)."""
        if self.size % self.heads:
            what = f"size {self.size} is not divisible by {self.heads} heads"
            yield "heads", what, f"choose a divisor of {self.size}"
        for text in self.graphs:
            try:
                found = parse(text) if isinstance(text, str) else None
            except EdgewiseError as error:
                yield "graphs", error.message, error.help
            else:
                if not isinstance(found, Pattern):
                    yield "graphs", f"`{text}` is not one pattern", "give a list of patterns"
        if not self.graphs or self.heads % len(self.graphs):
            what = f"{self.heads} heads cannot be divided among {len(self.graphs)} graphs"
            yield "graphs", what, f"give a number of graphs that divides {self.heads}"

    def build(self, words: int, corpus: Any, seed: int) -> GptModel:
        return GptModel(self, words, corpus.context, seed)

    def patterns(self) -> list[Pattern]:
        found = [parse(text) for text in self.graphs]
        return [p if p == causal() else p & causal() for p in found if isinstance(p, Pattern)]


def program(config: Gpt, words: int, context: int) -> Program:
    """Reads `token(i)`, derives `logits(i)`, a score for each word."""
    d, p = config.size, config.dropout
    sizes = gpt2.Config(
        vocabulary=words, size=d, heads=config.heads, layers=config.layers, dropout=p
    )
    stack = repeat(lambda x: _layer(x, config), config.layers)(R.x)
    return Program(
        [*gpt2.embeddings(R.x, sizes), stack, *gpt2.readout(stack.out, sizes)],
        domains={V.I: context, V.T: 3, V.H: config.heads // len(config.graphs)},
    )


def _layer(x: Atom, config: Gpt) -> Statements:
    """The layer of GPT-2, with heads in groups that have a graph each."""
    d, p = config.size, config.dropout
    return [
        *layer_norm(x, R.norm1, d),
        *_attention(R.norm1, R.heads, config),
        *residual(x, R.heads, R.attended, d, d, p),
        *layer_norm(R.attended, R.norm2, d),
        *feed_forward(R.norm2, R.mlp, d, 4 * d, activation=F.gelu),
        *residual(R.attended, R.mlp, R.out, 4 * d, d, p),
    ]


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


class GptModel(nn.Module):
    """The compiled program: token ids → logits."""

    def __init__(self, config: Gpt, words: int, context: int, seed: int) -> None:
        super().__init__()
        self.words, self.context = words, context
        self.program = program(config, words, context).compile(R.logits, seed=seed)
        initialise(self.program, config.layers, seed)

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
