"""Whisper: an encoder of sound, two convolutions and BART's layers, and a decoder of text.

    hₜ = gelu(Σₖ C₁ₖ featureₜ₊ₖ₋₁ + b₁),   xᵢ = gelu(Σₖ C₂ₖ h₂ᵢ₊ₖ₋₁ + b₂) + position(i),   k ≤ 2

Paper: https://arxiv.org/abs/2212.04356. Parity: `transformers.WhisperForConditionalGeneration`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.whisper.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, decoder_layers=2, mels=4, frames=5
... )
>>> model = zoo.whisper.program(config).compile(R.logits, seed=0)
>>> model(feature=torch.randn(10, 4), target=numbers(torch.arange(5))).shape
torch.Size([5, 50])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import bart
from edgewise.zoo.parts import Statements, convolution, dropped

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


def convolved(x: Atom, y: Atom, inputs: int, outputs: int, step: int) -> Statements:
    taps, row = convolution(x, y.relation, inputs, outputs, TAPS, step)
    return [*taps, y(V.I) <= F.gelu(row)]


def program(config: Config) -> Program:
    """Reads `feature(t)`, a vector for each frame of sound, and `target(i)`: `logits(i)`."""
    d, words = config.size, config.vocabulary
    made, row = bart.placed("encoder", R.conv2(V.I), R.conv2, config, config.frames)
    rules = [
        *convolved(R.feature, R.conv1, config.mels, d, 1),
        *convolved(R.conv1, R.conv2, d, d, 2),
        *made,
        R.x(V.I) <= dropped(row, config.dropout),
        *bart.embedded("decoder", R.target, R.y, config),
        *bart.both(config),
        R.logits(V.I) <= R["decoder.out"](V.I)[W.word[words, d]],
    ]
    return Program(rules, domains=bart.domains(config))
