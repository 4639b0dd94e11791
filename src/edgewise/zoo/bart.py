"""BART, and the encoder–decoders of its family: mBART, Marian.

    encoder   aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ gelu(W₁ aᵢ))
    decoder   the same over j ≤ i, and between the two norm(aᵢ + O′ attention over the encoder)

Papers: https://arxiv.org/abs/1910.13461, https://arxiv.org/abs/2001.08210 (mBART),
https://arxiv.org/abs/1804.00344 (Marian).
Parity: `transformers.BartForConditionalGeneration`, `MBartForConditionalGeneration` and
`MarianMTModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.bart.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2, decoder_layers=2)
>>> model = zoo.bart.program(config).compile(R.logits, seed=0)
>>> model(
...     source=numbers(torch.arange(9)), mask=torch.ones(9), target=numbers(torch.arange(5))
... ).shape
torch.Size([5, 50])
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Function, Variable, Weight
from edgewise.zoo import layers, transformer
from edgewise.zoo.parts import Statements, dropped, layer_norm, present, speeds


@dataclass(frozen=True)
class Config(transformer.Config):
    """`offset` is the position of the first token, where positions are learned.

    - normed: embeddings are normed. scaled: embeddings of words are multiplied by √size.
    - activation_dropout: of hidden layers, by default as of rows.
    - source_vocabulary: words of the source, where they differ from those of the target.
    """

    vocabulary: int = 50_265
    size: int = 1024
    heads: int = 16
    hidden: int = 4096
    layers: int = 12
    decoder_layers: int = 12
    length: int = 1024
    activation: Function = F.gelu
    offset: int = 2
    normed: bool = True
    scaled: bool = False
    activation_dropout: float | None = None
    source_vocabulary: int | None = None

    OWN: ClassVar = {"norm": "post", "positions": "learned"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation_dropout == self.dropout:
            object.__setattr__(self, "activation_dropout", None)

    def words(self, side: str) -> Weight:
        """The vectors of the words of the encoder or the decoder: one table, or two."""
        if side == "encoder" and self.source_vocabulary is not None:
            return W["encoder.word"][self.source_vocabulary, self.size]
        return W.word[self.vocabulary, self.size]

    @property
    def hidden_dropout(self) -> float:
        return self.dropout if self.activation_dropout is None else self.activation_dropout


def embedded(side: str, token: Atom, y: Atom, config: Config) -> Statements:
    """Words and positions."""
    d = config.size
    word: Expression = F.lookup(config.words(side), token(V.I))
    word = word[math.sqrt(d)].fixed() if config.scaled else word
    before, row = placed(side, word, token, config, config.length)
    if not config.normed or config.norm == "none":
        return [*before, y(V.I) <= dropped(row, config.dropout)]
    known, norm = R[f"{side}_known"], R[f"{side}_embedded"]
    return [
        *before,
        known(V.I) <= row,
        *layer_norm(known, norm, d, eps=config.eps),
        y(V.I) <= dropped(norm(V.I), config.dropout),
    ]


def placed(
    side: str, word: Expression, rows: Atom, config: Config, length: int
) -> tuple[Statements, Expression]:
    """With the vector of a position: a learned one, or sines, then cosines, of its angles."""
    if config.positions == "learned":
        table = W[f"{side}.position"][length + config.offset, config.size]
        return [], word + F.lookup(table, R.special.add_eval(V.I, config.offset))
    if config.positions != "sinusoidal":
        return [], word
    angle, speed = R[f"{side}_angle"], W.speed[list(speeds(config.size))].fixed()
    angles = R.special.add_eval(V.I, 0), speed, R.hidden[rows.relation](V.I)
    waves = F.concat(F.sin(angle(V.I)), F.cos(angle(V.I)))
    return [(angle(V.I) <= angles) | [F.product]], word + waves


def both(config: Config) -> Statements:
    """The encoder over `x(i)` and the decoder over `y(i)`."""
    return [
        *transformer.stacked("encoder", R.x, config.layers, config),
        R.memory(V.I) <= R["encoder.out"](V.I),
        *transformer.stacked("decoder", R.y, config.decoder_layers, config),
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
    return Program(rules, domains=domains(config))


def domains(config: Config) -> dict[Variable, int]:
    """Positions are rows of a table, not a domain."""
    found = layers.domains(config)
    found.pop(V.I, None)
    return found
