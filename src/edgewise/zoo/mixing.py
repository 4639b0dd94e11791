"""Transformer with a mean or a maximum in place of attention: no weights depend on the tokens.

    mᵢ = xᵢ + O mix_{j}(V norm1(x)ⱼ),   yᵢ = mᵢ + W₂ relu(W₁ norm2(m)ᵢ),   mix = mean or max

Papers: https://arxiv.org/abs/2111.11418 (pooling in place of attention),
https://arxiv.org/abs/2105.03824 (mixing without weights). Parity: `torch.nn.functional`, by
the equations.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.mixing.Config(size=16, hidden=32, layers=2)
>>> model = zoo.mixing.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(9, 16)).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass

from edgewise.errors import EdgewiseError, caller, safe_repr
from edgewise.graphs import window
from edgewise.language import F, Program, R, V, repeat
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo.parts import Statements, feed_forward, layer_norm, linear, residual

MIXES = {"mean": F.avg_agg, "max": F.max_agg}


class UnknownMix(EdgewiseError):
    """Rows are mixed by their mean or by their maximum."""

    code = "unknown-mix"
    example = "from edgewise.zoo import mixing\nmixing.Config(mix='median')"
    instead = "from edgewise.zoo import mixing\nmixing.Config(mix='max')"


@dataclass(frozen=True)
class Config:
    """`where`: conditions on `V.I` and `V.J`, which rows are mixed; by default the neighbours."""

    size: int = 512
    hidden: int = 2048
    layers: int = 6
    mix: str = "mean"
    dropout: float = 0.1
    where: tuple[Expression, ...] = (window(1)(V.I, V.J),)

    def __post_init__(self) -> None:
        if not isinstance(self.mix, str) or self.mix not in MIXES:
            raise UnknownMix(
                f"`mix={safe_repr(self.mix)}` is not one of mean, max",
                caller(),
                "write `mix='mean'`",
            )


def layer(x: Atom, config: Config) -> Statements:
    d, hidden, p = config.size, config.hidden, config.dropout
    every = R.hidden[x.relation](V.I)
    return [
        *layer_norm(x, R.norm1, d),
        *linear(R.norm1, R.v, d, d),
        (R.pooled(V.I) <= (R.v(V.J), every, *config.where)) | [MIXES[config.mix]],
        *residual(x, R.pooled, R.mixed, d, d, p),
        *layer_norm(R.mixed, R.norm2, d),
        *feed_forward(R.norm2, R.mlp, d, hidden, p=p),
        *residual(R.mixed, R.mlp, R.out, hidden, d, p),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and derives `out(i)`."""
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    return Program([stack, *layer_norm(stack.out, R.out, config.size)])
