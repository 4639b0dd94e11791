"""Graph isomorphism network.

    yᵢ = W₂ relu(norm(W₁ ((1 + ε) xᵢ + Σⱼ xⱼ) + b₁)) + b₂

Paper: https://arxiv.org/abs/1810.00826. Parity: `torch_geometric.nn.GINConv` with a two-layer
network and a learnable ε. The node itself and its neighbours are two rules, so a node without
edges keeps (1 + ε) xᵢ, as in PyG.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.gin.Config(inputs=8, hidden=8, outputs=3)
>>> model = zoo.gin.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Statement
from edgewise.zoo import network as networks
from edgewise.zoo.network import normed
from edgewise.zoo.parts import Statements, affine, linear


@dataclass(frozen=True)
class Config:
    """`norm` stands inside the network of two layers: none, batch or layer."""

    inputs: int = 16
    hidden: int = 16
    outputs: int = 16
    norm: str = "none"


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `out(i)`."""
    return [R.total(V.I) <= (x(V.J), R._edge(V.I, V.J)), *updated(x, config)]


def updated(x: Atom, config: Config) -> Statements:
    """The node itself beside `total(i)` of its neighbours, and the network of two layers."""
    hidden: tuple[Expression, ...] = affine(R.total(V.I), "mlp", config.inputs, config.hidden)
    if config.norm != "none":
        hidden = (normed(hidden[0] + hidden[1], "norm", config.hidden, config.norm),)
    own: Statement = R.total(V.I) <= (x(V.I), x(V.I)[W.eps[0.0]])
    return [
        own,
        (R.mlp(V.I) <= hidden) | [F.relu],
        *linear(R.mlp, R.out, config.hidden, config.outputs),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    return Program(layer(R.x, config))


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    """As in the paper: batch norms inside and after layers, a sum over all layers' readouts."""

    layers: int = 5
    task: str = "graph"
    norm: str = "batch"
    jump: bool = True


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`."""

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        return layer(x, Config(inputs, config.hidden, outputs, config.norm))

    return networks.assembled(config, made)
