"""Transformer encoder, pre-norm.

    mᵢ = xᵢ + dropout(O attention(norm1(x))ᵢ)
    yᵢ = mᵢ + dropout(W₂ dropout(activation(W₁ norm2(m)ᵢ)))

Paper: https://arxiv.org/abs/1706.03762, norms inside as in https://arxiv.org/abs/2002.04745.
Parity: `torch.nn.TransformerEncoder(norm_first=True, norm=LayerNorm(d))`.
"""

from dataclasses import dataclass
from typing import Any

from edgewise.language import F, Program, R, V, repeat
from edgewise.language.nodes import Atom, Expression, Function
from edgewise.zoo.parts import Statements, attention, layer_norm, pre_norm


@dataclass(frozen=True)
class Config:
    """`where` holds conditions on `V.I` and `V.J`: what a row may attend to."""

    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    activation: Function = F.relu
    dropout: float = 0.1
    where: tuple[Expression, ...] = ()
    eps: float = 1e-5


def layer(x: Atom, config: Config) -> Statements:
    d, p = config.size, config.dropout
    attends = attention(R.norm1, R.heads, d, config.heads, p=p, where=config.where)
    how: Any = {"activation": config.activation, "eps": config.eps, "p": p, "hidden_p": p}
    return pre_norm(x, attends, R.out, d, config.hidden, **how)


def program(config: Config) -> Program:
    """Reads `x(i)` and derives `out(i)`.

    >>> len(program(Config()).statements[0].statements)
    11
    """
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    return Program(
        [stack, *layer_norm(stack.out, R.out, config.size, eps=config.eps)],
        domains={V.H: config.heads},
    )
