"""Graph isomorphism network with edge features (GINE).

    yᵢ = W₂ relu(norm(W₁ ((1 + ε) xᵢ + Σⱼ relu(xⱼ + W eᵢⱼ + b)) + b₁)) + b₂

Paper: https://arxiv.org/abs/1905.12265. Parity: `torch_geometric.nn.GINEConv` with a two-layer
network, a learnable ε and `edge_dim`. A node without edges keeps (1 + ε) xᵢ, as in PyG.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.gine.Config(inputs=8, hidden=8, outputs=3, edges=4)
>>> model = zoo.gine.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=rows([(0, 1), (1, 2)], torch.randn(2, 4))).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo import gin
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements, affine


@dataclass(frozen=True)
class Config(gin.Config):
    """`edges` is the size of `edge(i, j)`; with 0 it is that of `x` and added as it is."""

    edges: int = 4


def layer(x: Atom, config: Config, edge: Atom = R.edge) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `out(i)`."""
    value: tuple[Expression, ...] = (edge(V.I, V.J),)
    if config.edges:
        value = affine(edge(V.I, V.J), "edge", config.edges, config.inputs)
    return [(R.total(V.I) <= (x(V.J), *value)) | [F.relu], *gin.updated(x, config)]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i with a vector; derives `out(i)`."""
    return Program(layer(R.x, config))


class Network(gin.Network):
    """As GIN's; `edges` are the features of edges."""


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`."""

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        sizes = Config(inputs, config.hidden, outputs, config.norm, config.edges)
        return layer(x, sizes) if config.edges else [*constant(inputs), *layer(x, sizes, R.vector)]

    return networks.assembled(config, made)


def constant(size: int) -> Statements:
    """`vector(i, j)` of edges that have none: one for all."""
    return [R.vector(V.I, V.J) <= (W.vector[size,], R._edge(V.I, V.J))]
