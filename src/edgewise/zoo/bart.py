"""BART, and the encoder–decoders of its family: mBART, Marian.

    encoder   aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ gelu(W₁ aᵢ))
    decoder   the same over j ≤ i, and between the two norm(aᵢ + O′ attention over the encoder)

Papers: https://arxiv.org/abs/1910.13461, https://arxiv.org/abs/2001.08210 (mBART),
https://arxiv.org/abs/1804.00344 (Marian).
Parity: `transformers.BartForConditionalGeneration`, `MBartForConditionalGeneration` and
`MarianMTModel`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W, repeat, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo import layers
from edgewise.zoo.parts import (
    Statements,
    attention,
    dropped,
    feed_forward,
    head_size,
    heads,
    layer_norm,
    present,
    residual,
    speeds,
)


@dataclass(frozen=True)
class Config:
    """`offset` is the position of the first token; without it positions are sines and cosines.

    - inside: norms are inside the sublayers, with one more at the end (mBART), not after the sums.
    - normed: embeddings are normed. scaled: embeddings of words are multiplied by √size.
    """

    vocabulary: int = 50_265
    size: int = 1024
    heads: int = 16
    hidden: int = 4096
    layers: int = 12
    decoder_layers: int = 12
    length: int = 1024
    offset: int | None = 2
    inside: bool = False
    normed: bool = True
    scaled: bool = False
    activation: Function = F.gelu
    eps: float = 1e-5
    dropout: float = 0.1

    MASKED: ClassVar[bool] = True  # rows of the encoder may be padding
    KEY_BIAS: ClassVar[bool] = True


MARIAN = Config(
    58_101, 512, 8, 2048, 6, 6, 512, offset=None, normed=False, scaled=True, activation=F.silu
)


def embedded(side: str, token: Atom, y: Atom, config: Config) -> Statements:
    """Words and positions."""
    d = config.size
    word = F.lookup(W.word[config.vocabulary, d], token(V.I))
    word = word[math.sqrt(d)].fixed() if config.scaled else word
    before, place = position(side, token, config, config.length)
    if not config.normed:
        return [*before, y(V.I) <= dropped(word + place, config.dropout)]
    known, norm = R[f"{side}_known"], R[f"{side}_embedded"]
    return [
        *before,
        known(V.I) <= word + place,
        *layer_norm(known, norm, d, eps=config.eps),
        y(V.I) <= dropped(norm(V.I), config.dropout),
    ]


def position(side: str, rows: Atom, config: Config, length: int) -> tuple[Statements, Expression]:
    """The vector of a position: a learned one, or sines and cosines of its angles."""
    if config.offset is not None:
        table = W[f"{side}.position"][length + config.offset, config.size]
        return [], F.lookup(table, R.special.add_eval(V.I, config.offset))
    angle, speed = R[f"{side}_angle"], W.speed[list(speeds(config.size))].fixed()
    angles = R.special.add_eval(V.I, 0), speed, R.hidden[rows.relation](V.I)
    return [(angle(V.I) <= angles) | [F.product]], F.concat(F.sin(angle(V.I)), F.cos(angle(V.I)))


def attended(
    name: str, x: Atom, y: Atom, config: Config, *, to: Atom | None = None, past: bool = False
) -> Statements:
    """A sublayer of attention, of x to itself or to another relation."""
    d, h = config.size, config.heads
    read, found = R[f"{name}_norm"] if config.inside else x, R[f"{name}_heads"]
    rules = attention(
        read, found, d, h, to=to, p=config.dropout,
        scores=_real(to) if config.MASKED and not past else (),
        where=(R.special.leq(V.J, V.I),) if past else (),
    )  # fmt: skip
    if not config.KEY_BIAS:
        rules[1:2] = heads(read if to is None else to, R.k, d, head_size(d, h), bias=False)
    own = [
        *scope(name)(rules[:-1]),
        (found(V.I) <= R[f"{name}.context"](V.H, V.I)) | [F.concat_agg],
    ]
    return sublayer(name, x, y, own, found, d, config)


def _real(to: Atom | None) -> tuple[Expression, ...]:
    """Pairs of tokens, not of padding; the target has none."""
    return layers.REAL if to is None else (layers.REAL_KEY,)


def sublayer(
    name: str, x: Atom, y: Atom, own: Statements, z: Atom, width: int, config: Config
) -> Statements:
    """y = norm(x + W z + b) or, with norms inside, x + W z + b; `own` rules derive z."""
    d, p = config.size, config.dropout
    if config.inside:
        norm = layer_norm(x, R[f"{name}_norm"], d, eps=config.eps)
        return [*norm, *own, *residual(x, z, y, width, d, p)]
    total = R[f"{y.relation}_sum"]
    return [*own, *residual(x, z, total, width, d, p), *layer_norm(total, y, d, eps=config.eps)]


def hidden_layer(x: Atom, y: Atom, config: Config) -> Statements:
    read, d, hidden = R.mlp_norm if config.inside else x, config.size, config.hidden
    own = feed_forward(read, R.mlp, d, hidden, activation=config.activation, p=config.dropout)
    return sublayer("mlp", x, y, own, R.mlp, hidden, config)


def encoder_layer(x: Atom, config: Config) -> Statements:
    return [
        *attended("self", x, R.attended, config),
        *hidden_layer(R.attended, R.out, config),
    ]


def decoder_layer(y: Atom, config: Config) -> Statements:
    return [
        *attended("self", y, R.attended, config, past=True),
        *attended("cross", R.attended, R.crossed, config, to=R.memory),
        *hidden_layer(R.crossed, R.out, config),
    ]


def stacked(side: str, x: Atom, layers: int, config: Config) -> list[Statement]:
    """A stack in a scope of its own; with norms inside there is one more at its end."""
    block = decoder_layer if side == "decoder" else encoder_layer
    stack = repeat(lambda u: block(u, config), layers)(x)
    last = layer_norm(stack.out, R.out, config.size, eps=config.eps)
    return scope(side)([stack, *(last if config.inside else [R.out(V.I) <= stack.out(V.I)])])


def both(config: Config) -> Statements:
    """The encoder over `x(i)` and the decoder over `y(i)`."""
    return [
        *stacked("encoder", R.x, config.layers, config),
        R.memory(V.I) <= R["encoder.out"](V.I),
        *stacked("decoder", R.y, config.decoder_layers, config),
    ]


def program(config: Config) -> Program:
    """Reads `source(i)`, `mask(i)` (0 where padded) and `target(i)`; derives `logits(i)`."""
    words = config.vocabulary
    rules = [
        *embedded("encoder", R.source, R.x, config),
        *embedded("decoder", R.target, R.y, config),
        *present(R.mask, R.present),
        *both(config),
        R.logits(V.I)
        <= (R["decoder.out"](V.I)[W.word[words, config.size]], W["logits.bias"][words,]),
    ]
    return Program(rules, domains={V.H: config.heads})
