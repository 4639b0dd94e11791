"""T5: an encoder and a decoder with relative positions, no biases, RMS norms.

    aᵢ = xᵢ + O attention(norm(x) + relative),   yᵢ = aᵢ + W₂ relu(W₁ norm(a)ᵢ)
    and in the decoder, between the two: + O′ attention(norm(a) over the encoder)

Paper: https://arxiv.org/abs/1910.10683. Parity: `transformers.T5ForConditionalGeneration`.
"""

from dataclasses import dataclass

from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W, repeat, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo.parts import Statements, attention, dropped, penalty, relative, rms_norm


@dataclass(frozen=True)
class Config:
    """`d` features per head; `gated`: W₂ (f(W₁ x) ⊙ W₃ x) instead of W₂ f(W₁ x) (T5 1.1).

    `tied`: words are scored by the table that they were read from; `scaled`: by 1 / √size of it.
    Half of the `buckets` hold one distance each, the others share those up to `far`.
    """

    vocabulary: int = 32_128
    size: int = 512
    heads: int = 8
    d: int = 64
    hidden: int = 2048
    layers: int = 6
    decoder_layers: int = 6
    buckets: int = 32
    far: int = 128
    activation: Function = F.relu
    gated: bool = False
    tied: bool = True
    scaled: bool = True
    eps: float = 1e-6
    dropout: float = 0.1

    def __post_init__(self) -> None:
        integer(self.far, "far", integer(self.buckets, "buckets", 4) // 2 + 1)


def attended(
    x: Atom,
    y: Atom,
    config: Config,
    *scores: Expression,
    to: Atom | None = None,
    ahead: bool = True,
) -> Statements:
    """A sublayer of attention: norm, attention, what it adds."""
    size, inner = config.size, config.heads * config.d
    where = () if ahead else (R.special.leq(V.J, V.I),)
    norm, heads = R[f"{y.relation}_norm"], R[f"{y.relation}_heads"]
    added = heads(V.I)[W[f"{y.relation}.weight"][size, inner]]
    rules = attention(
        norm, heads, size, config.heads, d=config.d, to=to, scale=1.0, bias=False,
        p=config.dropout, scores=scores, where=where,
    )  # fmt: skip
    return [
        *rms_norm(x, norm, size, eps=config.eps),
        *scope(y.relation)(rules[:-1]),
        (heads(V.I) <= R[f"{y.relation}.context"](V.H, V.I)) | [F.concat_agg],
        y(V.I) <= x(V.I) + dropped(added, config.dropout),
    ]


def feed_forward(x: Atom, y: Atom, config: Config) -> Statements:
    size, hidden, p = config.size, config.hidden, config.dropout
    made = [
        *rms_norm(x, R.norm, size, eps=config.eps),
        (R.mlp(V.I) <= R.norm(V.I)[W["mlp.weight"][hidden, size]]) | [config.activation],
    ]
    inner: Expression = R.mlp(V.I)
    if config.gated:
        made.append(R.gate(V.I) <= R.norm(V.I)[W["gate.weight"][hidden, size]])
        inner = R.mlp(V.I) * R.gate(V.I)
    added = F.identity(dropped(inner, p))[W[f"{y.relation}.weight"][size, hidden]]
    return [*made, y(V.I) <= x(V.I) + dropped(added, p)]


def encoder_layer(x: Atom, config: Config) -> Statements:
    return [
        *attended(x, R.self, config, R.relative(V.H, V.I, V.J), R.penalty(V.J)),
        *feed_forward(R.self, R.out, config),
    ]


def decoder_layer(y: Atom, config: Config) -> Statements:
    return [
        *attended(y, R.self, config, R.relative(V.H, V.I, V.J), ahead=False),
        *attended(R.self, R.cross, config, R.penalty(V.J), to=R.memory),
        *feed_forward(R.cross, R.out, config),
    ]


def stacked(name: str, x: Atom, layers: int, config: Config) -> list[Statement]:
    """A stack with its relative positions and the norm at its end."""
    decodes = name == "decoder"
    block = decoder_layer if decodes else encoder_layer
    stack = repeat(lambda u: block(u, config), layers)(x)
    bias = relative(x, R.relative, config.buckets, config.far, both=not decodes)
    return [*bias, stack, *rms_norm(stack.out, R.out, config.size, eps=config.eps)]


def program(config: Config) -> Program:
    """Reads `source(i)`, `mask(i)` (0 where padded) and `target(i)`; derives `logits(i)`.

    `memory(i)` is the encoder's output, `encoder.out(i)`.
    """
    size, words = config.size, W.word[config.vocabulary, config.size]
    scale = config.size**-0.5 if config.scaled else 1.0
    table = "word" if config.tied else "logits.weight"
    rules = [
        R.x(V.I) <= dropped(F.lookup(words, R.source(V.I)), config.dropout),
        R.y(V.I) <= dropped(F.lookup(words, R.target(V.I)), config.dropout),
        *penalty(R.mask, R.penalty),
        *scope("encoder")(stacked("encoder", R.x, config.layers, config)),
        R.memory(V.I) <= dropped(R["encoder.out"](V.I), config.dropout),
        *scope("decoder")(stacked("decoder", R.y, config.decoder_layers, config)),
        R.scaled(V.I) <= dropped(R["decoder.out"](V.I), config.dropout)[scale].fixed(),
        R.logits(V.I) <= R.scaled(V.I)[table : config.vocabulary, size],
    ]
    return Program(rules, domains={V.H: config.heads, V.B: config.buckets})
