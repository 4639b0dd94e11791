"""GPT: a causal decoder, norms after the sums, learned positions.

    aᵢ = norm1(xᵢ + O attention(x)_{j ≤ i}),   yᵢ = norm2(aᵢ + W₂ gelu(W₁ aᵢ))
    logitsᵢ = word · yᵢ

Paper: https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf.
Parity: `transformers.OpenAIGPTLMHeadModel`.
"""

from dataclasses import dataclass
from typing import Any

from edgewise.language import F, Program, R, V, repeat
from edgewise.language.nodes import Atom, Function
from edgewise.zoo import gpt2
from edgewise.zoo.parts import Statements, attention, post_norm


@dataclass(frozen=True)
class Config:
    vocabulary: int = 40_478
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    length: int = 512
    activation: Function = F.gelu_tanh
    eps: float = 1e-5
    dropout: float = 0.1


def layer(x: Atom, config: Config) -> Statements:
    d, p, past = config.size, config.dropout, (R.special.leq(V.J, V.I),)
    how: Any = {"activation": config.activation, "eps": config.eps, "p": p}
    return [
        *attention(x, R.heads, d, config.heads, p=p, where=past),
        *post_norm(x, R.heads, R.norm2, d, config.hidden, **how),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    sizes = gpt2.Config(config.vocabulary, config.size, dropout=config.dropout)
    rules = [
        *gpt2.embeddings(R.x, sizes),
        stack,
        R.out(V.I) <= stack.out(V.I),
        R.logits(V.I) <= R.out(V.I)["word" : config.vocabulary, config.size],
    ]
    return Program(rules, domains={V.H: config.heads, V.I: config.length})
