"""The Transformer: an encoder, and a decoder that attends to it.

    encoder   aᵢ = xᵢ + attention(x)ᵢ,  yᵢ = aᵢ + W₂ relu(W₁ aᵢ)
    decoder   the same over j ≤ i, and between the two + attention over the encoder's rows

A norm stands after each sum (post-norm, as in the paper) or before each sublayer, and once at the
end (pre-norm). Positions: `sinusoidal`, `learned`, `rotary`, `alibi`, `relative`.

Papers: https://arxiv.org/abs/1706.03762, https://arxiv.org/abs/2002.04745 (pre-norm),
https://arxiv.org/abs/2108.12409 (ALiBi), https://arxiv.org/abs/1910.10683 (relative).
Parity: `torch.nn.TransformerEncoder` and `torch.nn.TransformerDecoder`.
"""

import math
from dataclasses import dataclass

from edgewise.errors import EdgewiseError, caller, suggest
from edgewise.language import F, Program, R, V, W, repeat, scope
from edgewise.language.nodes import Atom, Expression, Fact, Function, Statement
from edgewise.zoo.parts import (
    Statements,
    attention,
    dropped,
    feed_forward,
    head_size,
    layer_norm,
    linear,
    penalty,
    relative,
    residual,
    rotary,
    speeds,
)

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative")
NORMS = ("post", "pre")
BUCKETS, FAR_BUCKET = 32, 128


class BadConfig(EdgewiseError):
    """A model's configuration names one of the variants that its rules implement."""

    code = "bad-config"
    example = "from edgewise.zoo import transformer\ntransformer.Config(positions='rotatory')"
    instead = "from edgewise.zoo import transformer\ntransformer.Config(positions='rotary')"


@dataclass(frozen=True)
class Config:
    vocabulary: int = 37_000
    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 6
    decoder_layers: int = 6
    length: int = 1024
    positions: str = "sinusoidal"
    norm: str = "post"
    activation: Function = F.relu
    eps: float = 1e-5
    dropout: float = 0.1
    tied: bool = False  # whether the table of words is that of the logits too

    def __post_init__(self) -> None:
        for name, known in (("positions", POSITIONS), ("norm", NORMS)):
            value = getattr(self, name)
            if value not in known:
                raise BadConfig(
                    f"`{name}={value!r}` is not one of {', '.join(known)}",
                    caller(),
                    suggest(str(value), known, f"write `{name}={known[0]!r}`"),
                )


def embedded(token: Atom, y: Atom, config: Config) -> Statements:
    """√d · word(token), and where positions are vectors the vector of the place."""
    d, made = config.size, []
    word = F.lookup(W.word[config.vocabulary, d], token(V.I))[math.sqrt(d)].fixed()
    if config.positions == "learned":
        word = word + W.position(V.I)[d,]
    if config.positions == "sinusoidal":
        angle, rows = R[f"{y.relation}_angle"], R.hidden[token.relation]
        angles = R.special.add_eval(V.I, 0), W.speed[list(speeds(d))].fixed(), rows(V.I)
        made = [(angle(V.I) <= angles) | [F.product]]
        word = word + alternating(F.sin(angle(V.I)), F.cos(angle(V.I)), d)
    return [*made, y(V.I) <= dropped(word, config.dropout)]


def alternating(a: Expression, b: Expression, size: int) -> Expression:
    """The elements of two vectors interleaved: a₀, b₀, a₁, b₁, ..."""
    return F.reshape(size)(F.transp(F.reshape((2, size // 2))(F.concat(a, b))))


def positions(x: Atom, config: Config, *, both: bool) -> list[Statement]:
    """The rules behind positions that are part of the scores."""
    match config.positions:
        case "rotary":
            return [*rotary(x, speeds(head_size(config.size, config.heads)))]
        case "alibi":
            rows = R.hidden[x.relation]
            far = F.abs(R.special.sub_eval(V.I, V.J))
            slopes = [2.0 ** (-8 * (h + 1) / config.heads) for h in range(config.heads)]
            return [
                R.distance(V.I, V.J) <= (far, rows(V.I), rows(V.J)),
                *(Fact(R.slope(h)[-slope].fixed()) for h, slope in enumerate(slopes)),
            ]
        case "relative":
            return [*relative(x, R.relative, BUCKETS, FAR_BUCKET, both=both)]
    return []


def score_terms(config: Config) -> tuple[Expression, ...]:
    match config.positions:
        case "alibi":
            return (R.slope(V.H) * R.distance(V.I, V.J),)
        case "relative":
            return (R.relative(V.H, V.I, V.J),)
    return ()


def sublayer(
    x: Atom, y: Atom, config: Config, rules: Statements, inner: Atom, read: Atom
) -> Statements:
    """`rules` derive `inner` from `read`; y is x with it, normed after or before."""
    d, width = config.size, config.hidden if inner.relation == "mlp" else config.size
    if config.norm == "pre":
        norm = layer_norm(x, read, d, eps=config.eps)
        return [*norm, *rules, *residual(x, inner, y, width, d, config.dropout)]
    total = R[f"{y.relation}_sum"]
    added = residual(x, inner, total, width, d, config.dropout)
    return [*rules, *added, *layer_norm(total, y, d, eps=config.eps)]


def attended(
    name: str, x: Atom, y: Atom, config: Config, scores: tuple[Expression, ...],
    *, to: Atom | None = None, where: tuple[Expression, ...] = (), rotate: bool = False,
) -> Statements:  # fmt: skip
    read = R[f"{name}_norm"] if config.norm == "pre" else x
    heads = R[f"{name}_heads"]
    attends = attention(
        read, heads, config.size, config.heads, to=to, p=config.dropout, scores=scores,
        where=where, rotate=rotate,
    )  # fmt: skip
    rules = [
        *scope(name)(attends[:-1]),
        (heads(V.I) <= R[f"{name}.context"](V.H, V.I)) | [F.concat_agg],
    ]
    return sublayer(x, y, config, rules, heads, read)


def feed_forward_sublayer(x: Atom, y: Atom, config: Config) -> Statements:
    """The feed-forward sublayer."""
    read = R.mlp_norm if config.norm == "pre" else x
    d, p = config.size, config.dropout
    rules = feed_forward(read, R.mlp, d, config.hidden, activation=config.activation, p=p)
    return sublayer(x, y, config, rules, R.mlp, read)


def encoder_layer(x: Atom, config: Config) -> Statements:
    scores = (*score_terms(config), R.penalty(V.J))
    rotate = config.positions == "rotary"
    return [
        *attended("self", x, R.attended, config, scores, rotate=rotate),
        *feed_forward_sublayer(R.attended, R.out, config),
    ]


def decoder_layer(y: Atom, config: Config) -> Statements:
    rotate, past = config.positions == "rotary", (R.special.leq(V.J, V.I),)
    return [
        *attended("self", y, R.attended, config, score_terms(config), where=past, rotate=rotate),
        *attended("cross", R.attended, R.crossed, config, (R.penalty(V.J),), to=R.memory),
        *feed_forward_sublayer(R.crossed, R.out, config),
    ]


def stacked(name: str, x: Atom, layers: int, config: Config) -> list[Statement]:
    """A stack in a scope of its own; with norms inside there is one more at its end."""
    block = decoder_layer if name == "decoder" else encoder_layer
    stack = repeat(lambda u: block(u, config), layers)(x)
    last = layer_norm(stack.out, R.out, config.size, eps=config.eps)
    end = last if config.norm == "pre" else [R.out(V.I) <= stack.out(V.I)]
    return scope(name)([*positions(x, config, both=name == "encoder"), stack, *end])


def readout(x: Atom, config: Config) -> Statements:
    """A score for every word; tied, how much the row is like the word."""
    d, words = config.size, config.vocabulary
    if not config.tied:
        return linear(x, R.logits, d, words)
    return [R.logits(V.I) <= (x(V.I)[W.word[words, d]], W["logits.bias"][words,])]


def program(config: Config) -> Program:
    """Reads `source(i)`, `mask(i)` (0 where padded) and `target(i)`; derives `logits(i)`."""
    rules = [
        *embedded(R.source, R.x, config),
        *embedded(R.target, R.y, config),
        *penalty(R.mask, R.penalty),
        *stacked("encoder", R.x, config.layers, config),
        R.memory(V.I) <= R["encoder.out"](V.I),
        *stacked("decoder", R.y, config.decoder_layers, config),
        *readout(R["decoder.out"], config),
    ]
    domains = {V.H: config.heads}
    domains |= {V.I: config.length} if config.positions == "learned" else {}
    domains |= {V.B: BUCKETS} if config.positions == "relative" else {}
    return Program(rules, domains=domains)
