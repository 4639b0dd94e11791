"""Megatron-BERT: BERT with its norms inside the residuals, so that it can be deep.

    xᵢ = word(tokenᵢ) + position(i) + type(segmentᵢ)
    aᵢ = xᵢ + O attention(norm1(x))ᵢ,   yᵢ = aᵢ + W₂ gelu(W₁ norm2(a)ᵢ),   outᵢ = norm(y)ᵢ

Paper: https://arxiv.org/abs/1909.08053. Parity: `transformers.MegatronBertModel`.
"""

from dataclasses import dataclass
from typing import Any

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom
from edgewise.zoo import bert
from edgewise.zoo.parts import Statements, attention, dropped, layer_norm, penalty, pre_norm


@dataclass(frozen=True)
class Config(bert.Config):
    vocabulary: int = 29_056
    size: int = 1024
    heads: int = 16
    hidden: int = 4096
    layers: int = 24


def embeddings(y: Atom, config: Config) -> Statements:
    """Reads `token(i)` and `segment(i)`."""
    d = config.size
    word = F.lookup(W.word[config.vocabulary, d], R.token(V.I))
    kind = F.lookup(W.type[config.types, d], R.segment(V.I))
    return [y(V.I) <= dropped(word + W.position(V.I)[d,] + kind, config.dropout)]


def layer(x: Atom, config: Config) -> Statements:
    d, p = config.size, config.dropout
    attends = attention(R.norm1, R.heads, d, config.heads, p=p, scores=(R.penalty(V.J),))
    how: Any = {"activation": config.activation, "eps": config.eps, "p": p}
    return pre_norm(x, attends, R.added, d, config.hidden, **how)


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, and from it
    `pooled`, `logits(i)` (of masked tokens) and `embedding`, as `bert.program` does.
    """
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    rules = [
        *embeddings(R.x, config),
        *penalty(R.mask, R.penalty),
        stack,
        *layer_norm(stack.out, R.out, config.size, eps=config.eps),
        *bert.readouts(config),
    ]
    return Program(rules, domains={V.H: config.heads, V.I: config.length})
