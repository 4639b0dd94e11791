"""Graph isomorphism network.

    yᵢ = W₂ relu(W₁ ((1 + ε) xᵢ + Σⱼ xⱼ) + b₁) + b₂

Paper: https://arxiv.org/abs/1810.00826. Parity: `torch_geometric.nn.GINConv` with a two-layer
network and a learnable ε. The node itself and its neighbours are two rules, so a node without
edges keeps (1 + ε) xᵢ, as in PyG.
"""

from dataclasses import dataclass

from edgewise.language import Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import Statements, feed_forward, linear


@dataclass(frozen=True)
class Config:
    inputs: int = 16
    hidden: int = 16
    outputs: int = 16


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `out(i)`."""
    return [
        R.total(V.I) <= (x(V.I), x(V.I)[W.eps[0.0]]),
        R.total(V.I) <= (x(V.J), R._edge(V.I, V.J)),
        *feed_forward(R.total, R.mlp, config.inputs, config.hidden),
        *linear(R.mlp, R.out, config.hidden, config.outputs),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    return Program(layer(R.x, config))
