"""Vision Transformer: an image is a sequence of patches, with a row for the class before them.

    x₀ = class + position(0),   xᵢ = W patchᵢ + b + position(i),   then an encoder, norms inside

Paper: https://arxiv.org/abs/2010.11929. Parity: `transformers.ViTForImageClassification`.
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Function
from edgewise.zoo import encoder
from edgewise.zoo.parts import Statements, affine, dropped, layer_norm


@dataclass(frozen=True)
class Config:
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
    return [
        (R.patch(V.P, V.Q) <= (R.pixel(V.C, V.Y, V.X), row, column)) | [F.concat_agg],
        R.known(0) <= W["class"][d,],
        R.known(V.I)
        <= (*affine(R.patch(V.P, V.Q), "patch", width, d), *places, R.special.next(V.K, V.I)),
        R.x(V.I) <= dropped(R.known(V.I) + W.position(V.I)[d,], config.dropout),
    ]


def program(config: Config) -> Program:
    """Reads `pixel(c, y, x)`, derives `out(i)` and from row 0 `pooled` and the scores of classes,
    `logits`.
    """
    inner = encoder.Config(
        config.size, config.heads, config.hidden, config.layers, config.activation,
        config.dropout, eps=config.eps,
    )  # fmt: skip
    stack = repeat(lambda x: encoder.layer(x, inner), config.layers)(R.x)
    rules = [
        *embeddings(config),
        stack,
        *layer_norm(stack.out, R.out, config.size, eps=config.eps),
        (R.pooled <= affine(R.out(0), "pooled", config.size, config.size)) | [F.tanh],
        R.logits <= affine(R.out(0), "logits", config.size, config.classes),
    ]
    return Program(rules, domains={V.H: config.heads, V.I: config.side**2 + 1})
