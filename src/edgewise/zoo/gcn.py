"""Graph convolutional network.

    yᵢ = Σ_{j ∈ N(i) ∪ {i}} W xⱼ / √(dᵢ dⱼ) + b,    dᵢ = |N(i) ∪ {i}|

Paper: https://arxiv.org/abs/1609.02907. Parity: `torch_geometric.nn.GCNConv`. Every row of `x`
has a self-loop, so a node without edges keeps its own message, as in PyG.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.gcn.Config(inputs=8, outputs=3)
>>> model = zoo.gcn.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import network as networks
from edgewise.zoo.network import Network
from edgewise.zoo.parts import Statements, neighbourhood


@dataclass(frozen=True)
class Config:
    inputs: int = 16
    outputs: int = 16


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)`, `neighbour(i, j)` and `degree(i)`, derives `out(i)`."""
    return [
        R.message(V.I) <= x(V.I)[W.weight[config.outputs, config.inputs]],
        (
            R.aggregated(V.I)
            <= (
                F.inverse(F.sqrt(R.degree(V.I) * R.degree(V.J))),
                R.message(V.J),
                R._neighbour(V.I, V.J),
            )
        )
        | [F.product],
        R.out(V.I) <= (R.aggregated(V.I), W.bias[config.outputs,].filled(0.0)),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    return Program([*normalised(), *layer(R.x, config)])


def normalised() -> Statements:
    """`neighbour(i, j)` with self-loops, and `degree(i)` of them."""
    degree = R.degree(V.I) <= R.neighbour(V.I, V.J)
    return [*neighbourhood(R.x, R.edge, R.neighbour), degree]


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`; by default two layers, as in the paper."""
    return networks.assembled(
        config, lambda x, inputs, outputs, last: layer(x, Config(inputs, outputs)), *normalised()
    )
