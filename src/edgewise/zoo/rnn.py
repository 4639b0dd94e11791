"""RNN encoder–decoder: what the Transformer replaced, without and with Luong's attention.

    GRU       z = σ(W x + U h'),  r = σ(W x + U h'),  n = tanh(W x + r ⊙ U h')
              h = (1 - z) ⊙ n + z ⊙ h',  where h' is the state one step before
    decoder   begins with the state that the encoder ends in
    attention c = Σⱼ softmaxⱼ(score(sᵢ, hⱼ)) hⱼ,  out = tanh(W [c; s])
    score     dot: hⱼ · sᵢ,  general: hⱼ · A sᵢ,  concat: v · tanh(A sᵢ + B hⱼ)

Papers: https://arxiv.org/abs/1406.1078, https://arxiv.org/abs/1508.04025 (attention).
Parity: `torch.nn.GRU` and Luong's equations in plain torch.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.rnn.Config(source_words=50, target_words=40, size=8)
>>> model = zoo.rnn.program(config).compile(R.logits, seed=0)
>>> model(
...     source=numbers([5, 6, 7]),
...     mask=torch.ones(3),
...     end=torch.tensor([0.0, 0.0, 1.0]),
...     target=numbers([1, 2]),
... ).shape
torch.Size([2, 40])
"""

from dataclasses import dataclass

from edgewise.errors import EdgewiseError, caller, suggest
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo.parts import Statements, affine, dropped, present

SCORES = ("none", "dot", "general", "concat")


class UnknownScore(EdgewiseError):
    """Luong's attention has three scores; `none` is a decoder without attention."""

    code = "unknown-score"
    example = "from edgewise.zoo import rnn\nrnn.Config(attention='dots')"
    instead = "from edgewise.zoo import rnn\nrnn.Config(attention='dot')"


@dataclass(frozen=True)
class Config:
    source_words: int = 10_000
    target_words: int = 10_000
    size: int = 256
    attention: str = "dot"
    dropout: float = 0.2

    def __post_init__(self) -> None:
        if self.attention not in SCORES:
            raise UnknownScore(
                f"`attention={self.attention!r}` is not one of {', '.join(SCORES)}",
                caller(),
                suggest(str(self.attention), SCORES, "write `attention='dot'`"),
            )


def gru(x: Atom, h: Atom, size: int, first: Expression) -> Statements:
    """States h(t) of a gated recurrent unit over x(t); `first` is the state before time 0."""
    name = h.relation
    before, z, r, n = (R[f"{name}_{part}"] for part in ("before", "update", "reset", "new"))

    def inputs(gate: str) -> tuple[Expression, ...]:
        weight = W[f"{name}.{gate}.in"][size, size]
        return x(V.T)[weight], W[f"{name}.{gate}.in_bias"][size,]

    def recurrent(gate: str) -> tuple[Expression, ...]:
        weight = W[f"{name}.{gate}.back"][size, size]
        return before(V.T)[weight], W[f"{name}.{gate}.back_bias"][size,]

    back, bias = recurrent("new")
    return [
        before(0) <= first,
        before(V.T) <= (h(V.S), R.special.next(V.S, V.T)),
        (z(V.T) <= (*inputs("update"), *recurrent("update"))) | [F.sigmoid],
        (r(V.T) <= (*inputs("reset"), *recurrent("reset"))) | [F.sigmoid],
        (n(V.T) <= (*inputs("new"), r(V.T) * (back + bias))) | [F.tanh],
        h(V.T) <= F.reverse(z(V.T)) * n(V.T) + z(V.T) * before(V.T),
    ]


def score(s: Atom, h: Atom, config: Config) -> Expression:
    """The attention score of decoder state i and encoder state j."""
    d = config.size
    match config.attention:
        case "dot":
            return h(V.J).T @ s(V.I)
        case "general":
            return h(V.J).T @ s(V.I)[W["score.A"][d, d]]
    hidden = F.tanh(s(V.I)[W["score.A"][d, d]] + h(V.J)[W["score.B"][d, d]])
    return W["score.v"][1, d] @ hidden


def luong(s: Atom, h: Atom, y: Atom, config: Config) -> Statements:
    """Attention of the decoder's states s to the encoder's h; padded states are masked."""
    d = config.size
    logit = score(s, h, config)
    return [
        *present(R.mask, R.present),
        (R.weights(V.I, V.J) <= (logit, R.present(V.J))) | [F.softmax_agg(agg_terms=[V.J])],
        (R.context(V.I) <= (R.weights(V.I, V.J), h(V.J))) | [F.product],
        (y(V.I) <= (R.context(V.I)[W["out.context"][d, d]], s(V.I)[W["out.state"][d, d]]))
        | [F.tanh],
    ]


def encoder(config: Config) -> Statements:
    """The encoder: states h(t) of `source(t)`."""
    source = F.lookup(W.source_word[config.source_words, config.size], R.source(V.T))
    first = W["h.first"][config.size,].filled(0.0).fixed()
    return [R.x(V.T) <= dropped(source, config.dropout), *gru(R.x, R.h, config.size, first)]


def decoder(config: Config) -> Statements:
    """The decoder: states s(t) of `target(t)`, from the state `last` on."""
    target = F.lookup(W.target_word[config.target_words, config.size], R.target(V.T))
    return [R.y(V.T) <= dropped(target, config.dropout), *gru(R.y, R.s, config.size, R.last)]


def readout(config: Config) -> Statements:
    """`logits(t)` of the state s(t), with attention to h."""
    attends = [] if config.attention == "none" else luong(R.s, R.h, R.out, config)
    state = dropped((R.out if attends else R.s)(V.I), config.dropout)
    return [*attends, R.logits(V.I) <= affine(state, "logits", config.size, config.target_words)]


def program(config: Config) -> Program:
    """Reads `source(t)`, `mask(t)` (0 where padded), `end(t)` (1 at the last token), `target(t)`.

    Derives `logits(t)`: a score for every word that may follow the target so far.
    """
    passed = (R.last <= (R.end(V.T), R.h(V.T))) | [F.product]
    return Program([*encoder(config), passed, *decoder(config), *readout(config)])
