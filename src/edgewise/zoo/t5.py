"""T5: an encoder and a decoder with relative positions, no biases, RMS norms.

    aᵢ = xᵢ + O attention(norm(x) + relative),   yᵢ = aᵢ + W₂ relu(W₁ norm(a)ᵢ)
    and in the decoder, between the two: + O′ attention(norm(a) over the encoder)

Paper: https://arxiv.org/abs/1910.10683. Parity: `transformers.T5ForConditionalGeneration`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.t5.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, d=8, decoder_layers=2
... )
>>> model = zoo.t5.program(config).compile(R.logits, seed=0)
>>> model(
...     source=numbers(torch.arange(9)), mask=torch.ones(9), target=numbers(torch.arange(5))
... ).shape
torch.Size([5, 50])
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges, everywhere
from edgewise.zoo.parts import Statements, dropped, present, relative, rms_norm

PAST = (R.special.leq(V.J, V.I),)
PLAIN: Any = {"norm": rms_norm, "bias": False}


@dataclass(frozen=True)
class Config(block.Block):
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

    OWN: ClassVar = {"scale": "none", "positions": "relative"}
    FITS: ClassVar = {"positions": ("relative", "alibi", "rotary", "sinusoidal", "none")}

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.far, "far", integer(self.buckets, "buckets", 4) // 2 + 1)


def attended(
    x: Atom, y: Atom, config: Config, edges: Edges, *scores: Expression, to: Atom | None = None
) -> tuple[Statements, Atom]:
    """A sublayer of attention: its rules, and the relation of what it gives."""

    def rules(read: Atom) -> Statements:
        return scope(y.relation)(
            layers.attention(
                read,
                R.heads,
                config,
                edges,
                d=config.d,
                to=to,
                bias=False,
                scores=scores,
                placed=to is None,
            )
        )

    heads, norm = R[f"{y.relation}.heads"], R[f"{y.relation}_norm"]
    total, width = to is not None or everywhere(config.graph), config.heads * config.d
    return layers.sublayer(x, y, norm, rules, heads, width, config, all_rows=total, **PLAIN)


def feed_forward(x: Atom, y: Atom, config: Config) -> Statements:
    """W₂ f(W₁ x), or with `gated` W₂ (f(W₁ x) ⊙ W₃ x)."""
    size, hidden, p = config.size, layers.hidden_size(config), config.dropout
    if config.feed_forward == "none":
        return []
    if config.feed_forward in (*block.ACTIVATIONS, *block.GATED):
        return layers.feed_forward(x, y, R.norm, config, p=p, **PLAIN)

    def rules(read: Atom) -> Statements:
        made = (R.mlp(V.I) <= read(V.I)[W["mlp.weight"][hidden, size]]) | [config.activation]
        gate = R.gate(V.I) <= read(V.I)[W["gate.weight"][hidden, size]]
        inner = R.mlp(V.I) * R.gate(V.I) if config.gated else R.mlp(V.I)
        return [made, *([gate] if config.gated else []), R.inner(V.I) <= dropped(inner, p)]

    return layers.sublayer(x, y, R.norm, rules, R.inner, hidden, config, **PLAIN)[0]


def encoder_layer(x: Atom, config: Config, edges: Edges) -> Statements:
    rules, mid = attended(x, R.self, config, edges, *layers.REAL)
    return [*rules, *feed_forward(mid, R.out, config)]


def decoder_layer(y: Atom, config: Config, edges: Edges) -> Statements:
    own, mid = attended(y, R.self, config, edges)
    every = ((config.heads, ()),)
    cross, last = attended(mid, R.cross, config, every, layers.REAL_KEY, to=R.memory)
    return [*own, *cross, *feed_forward(last, R.out, config)]


def stacked(name: str, x: Atom, count: int, config: Config) -> list[Statement]:
    """A stack with its relative positions and the norm at its end."""
    decodes = name == "decoder"
    made, past = (decoder_layer, PAST) if decodes else (encoder_layer, ())
    edges = block.edges(config, count, own=past, past=past)
    stack, (last,) = block.stacked(lambda pairs: lambda u: made(u, config, pairs), edges, x)
    before = layers.positions(x, config, both=not decodes)
    if config.positions == "relative":
        before = relative(x, R.relative, config.buckets, config.far, both=not decodes)
    return [*before, *stack, *layers.ended(last, R.out, config, norm=rms_norm)]


def embedded(token: Atom, y: Atom, config: Config) -> Statements:
    word = F.lookup(W.word[config.vocabulary, config.size], token(V.I))
    made, row = layers.placed(word, token, y, config)
    return [*made, y(V.I) <= dropped(row, config.dropout)]


def program(config: Config) -> Program:
    """Reads `source(i)`, `mask(i)` (0 where padded) and `target(i)`; derives `logits(i)`.

    `memory(i)` is the encoder's output, `encoder.out(i)`.
    """
    size = config.size
    scale = config.size**-0.5 if config.scaled else 1.0
    table = "word" if config.tied else "logits.weight"
    rules = [
        *embedded(R.source, R.x, config),
        *embedded(R.target, R.y, config),
        *present(R.mask, R.present),
        *scope("encoder")(stacked("encoder", R.x, config.layers, config)),
        R.memory(V.I) <= dropped(R["encoder.out"](V.I), config.dropout),
        *scope("decoder")(stacked("decoder", R.y, config.decoder_layers, config)),
        R.scaled(V.I) <= dropped(R["decoder.out"](V.I), config.dropout)[scale].fixed(),
        R.logits(V.I) <= R.scaled(V.I)[table : config.vocabulary, size],
    ]
    domains = layers.domains(config)
    if config.positions == "relative":
        domains |= {V.B: config.buckets}
    return Program(rules, domains=domains)
