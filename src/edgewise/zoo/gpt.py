"""GPT: a causal decoder, norms after the sums, learned positions.

    aᵢ = norm1(xᵢ + O attention(x)_{j ≤ i}),   yᵢ = norm2(aᵢ + W₂ gelu(W₁ aᵢ))
    logitsᵢ = word · yᵢ

Paper: https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf,
after https://arxiv.org/abs/1706.03762.
Parity: `transformers.OpenAIGPTLMHeadModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.gpt.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2)
>>> model = zoo.gpt.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9))).shape
torch.Size([9, 50])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R
from edgewise.language.nodes import Function
from edgewise.zoo import gpt2


@dataclass(frozen=True)
class Config(gpt2.Config):
    vocabulary: int = 40_478
    length: int = 512
    activation: Function = F.gelu_tanh

    OWN: ClassVar = gpt2.Config.OWN | {"norm": "post"}


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    return gpt2.program(config, R.added)
