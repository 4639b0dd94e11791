"""GPT-2: a causal decoder, norms inside, learned positions.

    aᵢ = xᵢ + O attention(norm1(x))_{j ≤ i},   yᵢ = aᵢ + W₂ gelu(W₁ norm2(a)ᵢ)
    logitsᵢ = word · norm(y)ᵢ

Paper: https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf,
after https://arxiv.org/abs/1706.03762. Parity: `transformers.GPT2LMHeadModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.gpt2.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2)
>>> model = zoo.gpt2.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9))).shape
torch.Size([9, 50])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Function, Statement
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, dropped

PAST = (R.special.leq(V.J, V.I),)


@dataclass(frozen=True)
class Config(block.Block):
    vocabulary: int = 50_257
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    length: int = 1024
    activation: Function = F.gelu_tanh
    eps: float = 1e-5
    dropout: float = 0.1

    OWN: ClassVar = {"positions": "learned"}


def layer(x: Atom, config: Config, edges: Edges, out: Atom = R.out) -> Statements:
    return layers.layer(
        x, lambda read: layers.attention(read, R.heads, config, edges), config, out=out
    )


def embeddings(y: Atom, config: Config) -> Statements:
    word = F.lookup(W.word[config.vocabulary, config.size], R.token(V.I))
    made, word = layers.placed(word, R.token, y, config)
    return [*made, y(V.I) <= dropped(word, config.dropout)]


def readout(x: Atom, config: Config) -> Statements:
    """A score for every word that may come next, by the table that words were read from."""
    return [
        *layers.ended(x, R.out, config),
        R.logits(V.I) <= R.out(V.I)["word" : config.vocabulary, config.size],
    ]


def program(config: Config, out: Atom = R.out) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask.

    `out` is the relation of the last sum of a layer.
    """
    edges = block.edges(config, config.layers, own=PAST, past=PAST)
    stack, (last,) = block.stacked(lambda pairs: lambda x: layer(x, config, pairs, out), edges, R.x)
    rules: list[Statement] = [
        *embeddings(R.x, config),
        *layers.positions(R.x, config, both=False),
        *stack,
        *readout(last, config),
    ]
    return Program(rules, domains=layers.domains(config))
