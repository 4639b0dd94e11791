"""Vision Transformer: an image is a sequence of patches, with a row for the class before them.

    x₀ = class + position(0),   xᵢ = W patchᵢ + b + position(i),   then an encoder, norms inside

Paper: https://arxiv.org/abs/2010.11929. Parity: `transformers.ViTForImageClassification`.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.vit.Config(image=8, patch=4, size=16, heads=2, hidden=32, layers=2, classes=3)
>>> model = zoo.vit.program(config).compile(R.logits, seed=0)
>>> model(pixel=torch.randn(3, 8, 8)).shape
torch.Size([3])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Function
from edgewise.zoo import block, encoder, layers
from edgewise.zoo.parts import Statements, affine, dropped


@dataclass(frozen=True)
class Config(block.Block):
    """Square images of `image`² points with `channels` numbers each, in patches of `patch`²."""

    image: int = 224
    patch: int = 16
    channels: int = 3
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    classes: int = 1000
    activation: Function = F.gelu
    eps: float = 1e-12
    dropout: float = 0.0

    OWN: ClassVar = {"positions": "learned"}

    @property
    def length(self) -> int:
        """Rows: a class and the patches."""
        return self.side**2 + 1

    @property
    def side(self) -> int:
        """Patches along one side."""
        return self.image // self.patch


def embeddings(config: Config) -> Statements:
    """Patches in reading order, from 1 on; `pixel(C, Y, X)` is a number."""
    d, patch = config.size, config.patch
    width = config.channels * patch * patch
    row, column = R.special.div(V.Y, patch, V.P), R.special.div(V.X, patch, V.Q)
    places = R.special.mul(V.P, config.side, V.A), R.special.add(V.A, V.Q, V.K)
    made, known = layers.placed(R.known(V.I), R.known, R.x, config)
    return [
        (R.patch(V.P, V.Q) <= (R.pixel(V.C, V.Y, V.X), row, column)) | [F.concat_agg],
        R.known(0) <= W["class"][d,],
        R.known(V.I)
        <= (*affine(R.patch(V.P, V.Q), "patch", width, d), *places, R.special.next(V.K, V.I)),
        *made,
        R.x(V.I) <= dropped(known, config.dropout),
    ]


def program(config: Config) -> Program:
    """Reads `pixel(c, y, x)`, derives `out(i)` and from row 0 `pooled` and the scores of classes,
    `logits`.
    """
    edges = block.edges(config, config.layers)
    stack, (last,) = block.stacked(
        lambda pairs: lambda x: encoder.layer(x, config, pairs), edges, R.x
    )
    rules = [
        *embeddings(config),
        *layers.positions(R.x, config),
        *stack,
        *layers.ended(last, R.out, config),
        (R.pooled <= affine(R.out(0), "pooled", config.size, config.size)) | [F.tanh],
        R.logits <= affine(R.out(0), "logits", config.size, config.classes),
    ]
    return Program(rules, domains=layers.domains(config))
