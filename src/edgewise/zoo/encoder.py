"""Transformer encoder, pre-norm.

    mᵢ = xᵢ + dropout(O attention(norm1(x))ᵢ)
    yᵢ = mᵢ + dropout(W₂ dropout(activation(W₁ norm2(m)ᵢ)))

Paper: https://arxiv.org/abs/1706.03762, norms inside as in https://arxiv.org/abs/2002.04745.
Parity: `torch.nn.TransformerEncoder(norm_first=True, norm=LayerNorm(d))`.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.encoder.Config(size=16, heads=2, hidden=32, layers=2)
>>> model = zoo.encoder.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(9, 16)).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R
from edgewise.language.nodes import Atom, Function
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config(block.Block):
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    activation: Function = F.relu
    dropout: float = 0.1
    eps: float = 1e-5

    FITS: ClassVar = {"positions": ("none", "rotary", "alibi", "relative")}


def layer(x: Atom, config: block.Config, edges: Edges) -> Statements:
    return layers.layer(
        x,
        lambda read: layers.attention(read, R.heads, config, edges),
        config,
        out=R.out,
        p=config.dropout,
    )


def program(config: Config) -> Program:
    """Reads `x(i)` and derives `out(i)`.

    >>> len(program(Config()).statements[0].statements)
    11
    """
    stack, (last,) = block.stacked(
        lambda edges: lambda x: layer(x, config, edges), block.edges(config, config.layers), R.x
    )
    return Program(
        [*layers.positions(R.x, config), *stack, *layers.ended(last, R.out, config)],
        domains=layers.domains(config),
    )
