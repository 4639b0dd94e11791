"""Megatron-BERT: BERT with its norms inside the residuals, so that it can be deep.

    xᵢ = word(tokenᵢ) + position(i) + type(segmentᵢ)
    aᵢ = xᵢ + O attention(norm1(x))ᵢ,   yᵢ = aᵢ + W₂ gelu(W₁ norm2(a)ᵢ),   outᵢ = norm(y)ᵢ

Paper: https://arxiv.org/abs/1909.08053. Parity: `transformers.MegatronBertModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.megatron.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2)
>>> model = zoo.megatron.program(config).compile(R.out, seed=0)
>>> model(
...     token=numbers(torch.arange(9)), mask=torch.ones(9), segment=numbers(torch.zeros(9).long())
... ).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import bert, layers
from edgewise.zoo.parts import Statements, dropped


@dataclass(frozen=True)
class Config(bert.Config):
    vocabulary: int = 29_056
    size: int = 1024
    heads: int = 16
    hidden: int = 4096
    layers: int = 24

    OWN: ClassVar = bert.Config.OWN | {"norm": "pre"}


def embeddings(y: Atom, config: Config) -> Statements:
    """Reads `token(i)` and `segment(i)`."""
    d = config.size
    word = F.lookup(W.word[config.vocabulary, d], R.token(V.I))
    kind = F.lookup(W.type[config.types, d], R.segment(V.I))
    made, word = layers.placed(word, R.token, y, config)
    return [*made, y(V.I) <= dropped(word + kind, config.dropout)]


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, and from it
    `pooled`, `logits(i)` (of masked tokens) and `embedding`, as `bert.program` does.
    """
    rules = [*bert.encoder(config, bert.layer, embeddings), *bert.readouts(config)]
    return Program(rules, domains=layers.domains(config))
