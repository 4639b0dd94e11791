"""ELECTRA: BERT whose embeddings may be smaller than its layers, trained to find replaced tokens.

    replacedᵢ = v · gelu(W yᵢ + b) + c,   a score that token i is not the one that was written

Paper: https://arxiv.org/abs/2003.10555. Parity: `transformers.ElectraForPreTraining`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.electra.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2, embedding=8)
>>> model = zoo.electra.program(config).compile(R.out, seed=0)
>>> model(
...     token=numbers(torch.arange(9)), mask=torch.ones(9), segment=numbers(torch.zeros(9).long())
... ).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V
from edgewise.language.nodes import Function
from edgewise.zoo import bert
from edgewise.zoo.parts import affine


@dataclass(frozen=True)
class Config(bert.Config):
    size: int = 256
    heads: int = 4
    hidden: int = 1024
    pooling: Function = F.gelu
    embedding: int | None = 128
    guessing: Function | None = F.gelu


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, and from it
    `replaced(i)`, `logits(i)` (of the generator), `embedding`, `classes`, `tags(i)` and `span(i)`.
    """
    d = config.size
    rules = [
        *bert.encoder(config, bert.layer),
        (R.judged(V.I) <= affine(R.out(V.I), "judged", d, d)) | [config.activation],
        R.replaced(V.I) <= affine(R.judged(V.I), "replaced", d, 1),
        bert.pooled(config),
        *bert.masked_tokens(config, config.activation_of_guess),
        *bert.classifiers(config),
        *bert.unit_mean(R.out, R.mask, R.embedding),
    ]
    return Program(rules, domains=bert.domains(config))
