"""Whisper: an encoder of sound, two convolutions and BART's layers, and a decoder of text.

    hₜ = gelu(Σₖ C₁ₖ featureₜ₊ₖ₋₁ + b₁),   xᵢ = gelu(Σₖ C₂ₖ h₂ᵢ₊ₖ₋₁ + b₂) + position(i),   k ≤ 2

Paper: https://arxiv.org/abs/2212.04356. Parity: `transformers.WhisperForConditionalGeneration`.
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import bart
from edgewise.zoo.parts import Statements, dropped

TAPS = 3


@dataclass(frozen=True)
class Config(bart.Config):
    """`mels` numbers of each of 2 · `frames` frames of sound; `length` is that of texts."""

    vocabulary: int = 51_865
    size: int = 384
    heads: int = 6
    hidden: int = 1536
    layers: int = 4
    decoder_layers: int = 4
    length: int = 448
    dropout: float = 0.0
    offset: int = 0
    normed: bool = False
    mels: int = 80
    frames: int = 1500

    OWN: ClassVar = {"norm": "pre", "positions": "learned"}
    MASKED: ClassVar[bool] = False
    KEY_BIAS: ClassVar[bool] = False


def convolution(x: Atom, y: Atom, inputs: int, outputs: int, step: int) -> Statements:
    """y(i) from the three rows of x around step · i; rows beyond the ends count as 0."""
    name, taps = y.relation, R[f"{y.relation}_taps"]
    centre = R.hidden[x.relation](V.C), R.special.mul(V.I, step, V.C), R.special.add(V.J, 1, V.S)
    rules = []
    for k in range(TAPS):  # j = step · i + k - 1
        row = x(V.J)[W[f"{name}.{k}"][outputs, inputs]]
        rules.append(taps(V.I) <= (row, *centre, R.special.add(V.C, k, V.S)))
    return [*rules, y(V.I) <= F.gelu(taps(V.I) + W[f"{name}.bias"][outputs,])]


def program(config: Config) -> Program:
    """Reads `feature(t)`, a vector for each frame of sound, and `target(i)`: `logits(i)`."""
    d, words = config.size, config.vocabulary
    made, row = bart.placed("encoder", R.conv2(V.I), R.conv2, config, config.frames)
    rules = [
        *convolution(R.feature, R.conv1, config.mels, d, 1),
        *convolution(R.conv1, R.conv2, d, d, 2),
        *made,
        R.x(V.I) <= dropped(row, config.dropout),
        *bart.embedded("decoder", R.target, R.y, config),
        *bart.both(config),
        R.logits(V.I) <= R["decoder.out"](V.I)[W.word[words, d]],
    ]
    return Program(rules, domains=bart.domains(config))
