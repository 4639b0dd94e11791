"""GPT-2: a causal decoder, norms inside, learned positions.

    aᵢ = xᵢ + O attention(norm1(x))_{j ≤ i},   yᵢ = aᵢ + W₂ gelu(W₁ norm2(a)ᵢ)
    logitsᵢ = word · norm(y)ᵢ

Paper: https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf,
after https://arxiv.org/abs/1706.03762. Parity: `transformers.GPT2LMHeadModel`.
"""

from dataclasses import dataclass
from typing import Any

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom, Expression, Function
from edgewise.zoo.parts import Statements, attention, dropped, layer_norm, pre_norm


@dataclass(frozen=True)
class Config:
    """`where` holds conditions on `V.I` and `V.J`: what a token may attend to."""

    vocabulary: int = 50_257
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    length: int = 1024
    activation: Function = F.gelu_tanh
    eps: float = 1e-5
    dropout: float = 0.1
    where: tuple[Expression, ...] = (R.special.leq(V.J, V.I),)


def layer(
    x: Atom, config: Config, where: tuple[Expression, ...], *, everywhere: bool = True
) -> Statements:
    """`everywhere`: every token attends to some; else those that attend to none are unchanged."""
    d, p = config.size, config.dropout
    attends = attention(R.norm1, R.heads, d, config.heads, p=p, where=where)
    how: Any = {"activation": config.activation, "eps": config.eps, "p": p}
    return pre_norm(x, attends, R.out, d, config.hidden, everywhere=everywhere, **how)


def embeddings(y: Atom, config: Config) -> Statements:
    d = config.size
    word = F.lookup(W.word[config.vocabulary, d], R.token(V.I))
    return [y(V.I) <= dropped(word + W.position(V.I)[d,], config.dropout)]


def readout(x: Atom, config: Config) -> Statements:
    """A score for every word that may come next, by the table that words were read from."""
    return [
        *layer_norm(x, R.out, config.size, eps=config.eps),
        R.logits(V.I) <= R.out(V.I)["word" : config.vocabulary, config.size],
    ]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    stack = repeat(lambda x: layer(x, config, config.where), config.layers)(R.x)
    return Program(
        [*embeddings(R.x, config), stack, *readout(stack.out, config)],
        domains={V.H: config.heads, V.I: config.length},
    )
