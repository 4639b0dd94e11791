"""ConvS2S: convolutions with gates, stacked, in place of recurrence and attention.

    hᵢ = Σₖ Wₖ xᵢ₊ₖ₋ₗ + b,   (a, g) = h,   yᵢ = (xᵢ + a ⊙ σ(g)) √½

l = taps - 1 for a causal decoder and (taps - 1) / 2 otherwise; beyond the ends there is nothing.

Paper: https://arxiv.org/abs/1705.03122. Parity: `torch.nn.Conv1d` and `glu`.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.convs2s.Config(size=16, layers=2)
>>> model = zoo.convs2s.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(9, 16)).shape
torch.Size([9, 16])
"""

import math
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import Statements, dropped


@dataclass(frozen=True)
class Config:
    size: int = 512
    taps: int = 3
    layers: int = 15
    causal: bool = False
    dropout: float = 0.1

    @property
    def left(self) -> int:
        """How many taps lie before the token."""
        return self.taps - 1 if self.causal else (self.taps - 1) // 2


def layer(x: Atom, config: Config) -> Statements:
    d, half = config.size, math.sqrt(0.5)
    shift = (  # j = i + k - left
        R.special.add(V.J, config.left, V.S),
        R.special.add(V.I, V.K, V.S),
        R.special.leq(0, V.K),
        R.special.lt(V.K, config.taps),
    )
    read = dropped(x(V.J), config.dropout)
    value = F.slice(rows=(0, d))(R.full(V.I))
    gate = F.sigmoid(F.slice(rows=(d, 2 * d))(R.full(V.I)))
    taps = F.identity(read)[W["taps"](V.K)[2 * d, d]]
    return [
        R.taps(V.I) <= (taps, R.hidden[x.relation](V.I), *shift),
        R.full(V.I) <= R.taps(V.I) + W.bias[2 * d,],
        R.out(V.I) <= x(V.I)[half].fixed() + (value * gate)[half].fixed(),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and derives `out(i)`."""
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    return Program([stack, R.out(V.I) <= stack.out(V.I)], domains={V.K: config.taps})
