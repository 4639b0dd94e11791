"""GraphSAGE with the mean of the neighbours.

    yᵢ = W_root xᵢ + W_neigh meanⱼ xⱼ + b

Paper: https://arxiv.org/abs/1706.02216. Parity: `torch_geometric.nn.SAGEConv`. The two terms are
two rules: of a node without edges only the first derives a value, so the mean counts as 0,
as in PyG.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.graphsage.Config(inputs=8, outputs=3)
>>> model = zoo.graphsage.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import network as networks
from edgewise.zoo.network import Network
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config:
    inputs: int = 16
    outputs: int = 16


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    return [
        (R.mean(V.I) <= (x(V.J), R._edge(V.I, V.J))) | [F.avg_agg],
        R.out(V.I) <= (x(V.I)[W["root.weight"][m, d]], W.bias[m,].filled(0.0)),
        R.out(V.I) <= R.mean(V.I)[W["neighbours.weight"][m, d]],
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    return Program(layer(R.x, config))


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`."""
    return networks.assembled(
        config, lambda x, inputs, outputs, last: layer(x, Config(inputs, outputs))
    )
