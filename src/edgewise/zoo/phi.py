"""Phi: Llama's attention with some features rotated, beside a hidden layer, both from one norm.

    yᵢ = xᵢ + O attention(z)_{j ≤ i} + W₂ gelu(W₁ zᵢ),   z = norm(x)

Papers: https://arxiv.org/abs/2306.11644, https://arxiv.org/abs/2309.05463.
Parity: `transformers.PhiForCausalLM`.
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom, Function
from edgewise.zoo import llama
from edgewise.zoo.parts import Statements, affine, dropped, feed_forward, layer_norm, rotary


@dataclass(frozen=True)
class Config:
    """`rotated` features of each head are rotated; `dropout` is that of attention."""

    vocabulary: int = 51_200
    size: int = 2048
    heads: int = 32
    groups: int = 32
    d: int = 64
    hidden: int = 8192
    layers: int = 24
    length: int = 2048
    base: float = 10_000.0
    stretch: tuple[float, ...] | None = None
    rotated: int | None = 32
    activation: Function = F.gelu_tanh
    eps: float = 1e-5
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    residual_dropout: float = 0.0
    tied: bool = False

    @property
    def attention(self) -> llama.Config:
        """What attention is like."""
        return llama.Config(
            size=self.size, heads=self.heads, groups=self.groups, d=self.d, base=self.base,
            stretch=self.stretch, rotated=self.rotated, dropout=self.dropout,
            biases=("q", "k", "v"),
        )  # fmt: skip


def layer(x: Atom, config: Config) -> Statements:
    size, hidden, p = config.size, config.hidden, config.residual_dropout
    weight, bias = affine(R.heads(V.I), "attended", config.heads * config.d, size)
    out, out_bias = affine(R.mlp(V.I), "out", hidden, size)
    return [
        *layer_norm(x, R.norm, size, eps=config.eps),
        *llama.attention(R.norm, config.attention, local=False),
        *feed_forward(R.norm, R.mlp, size, hidden, activation=config.activation),
        R.out(V.I) <= x(V.I) + dropped(weight + bias, p) + dropped(out + out_bias, p),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    size, words = config.size, config.vocabulary
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    table = W["word" if config.tied else "logits.weight"]
    rules = [
        R.x(V.I) <= dropped(F.lookup(W.word[words, size], R.token(V.I)), config.embedding_dropout),
        *rotary(R.token, config.attention.speeds),
        stack,
        *layer_norm(stack.out, R.out, size, eps=config.eps),
        R.logits(V.I) <= (R.out(V.I)[table[words, size]], W["logits.bias"][words,]),
    ]
    return Program(rules, domains={V.G: config.groups, V.U: config.heads // config.groups})
