"""The basic graph network: a node's own features beside an aggregate of its neighbours'.

    yᵢ = W_root xᵢ + W aggⱼ(xⱼ) + b,   agg = sum, mean, max or attention
    attention: Σⱼ softmaxⱼ(Q xᵢ · K xⱼ / √d) xⱼ

Paper: https://arxiv.org/abs/1810.02244. Parity: `torch_geometric.nn.GraphConv` with
`aggr` add, mean and max. Two rules derive a row: without edges only its own features count.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.basic_gnn.Config(inputs=8, outputs=3)
>>> model = zoo.basic_gnn.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
torch.Size([4, 3])
"""

import math
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements

AGGREGATIONS = {"sum": F.sum_agg, "mean": F.avg_agg, "max": F.max_agg}


@dataclass(frozen=True)
class Config:
    """`aggregation` is sum, mean, max or attention."""

    inputs: int = 16
    outputs: int = 16
    aggregation: str = "sum"

    def __post_init__(self) -> None:
        networks.one_of("aggregation", self.aggregation, (*AGGREGATIONS, "attention"))


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    return [
        *_aggregated(x, config),
        R.out(V.I) <= (x(V.I)[W["root.weight"][m, d]], W.bias[m,].filled(0.0)),
        R.out(V.I) <= R.aggregate(V.I)[W["neighbours.weight"][m, d]],
    ]


def _aggregated(x: Atom, config: Config) -> Statements:
    d, edge = config.inputs, R._edge(V.I, V.J)
    if config.aggregation in AGGREGATIONS:
        how = AGGREGATIONS[config.aggregation]
        return [(R.aggregate(V.I) <= (x(V.J), edge)) | [how]]
    query = R.query(V.I)[1 / math.sqrt(d)].fixed()
    return [
        R.query(V.I) <= x(V.I)[W["query.weight"][d, d]],
        R.key(V.I) <= x(V.I)[W["key.weight"][d, d]],
        (R.alpha(V.I, V.J) <= (R.key(V.J).T @ query, edge)) | [F.softmax_agg(agg_terms=[V.J])],
        (R.aggregate(V.I) <= (R.alpha(V.I, V.J), x(V.J))) | [F.product],
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    return Program(layer(R.x, config))


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    aggregation: str = "sum"


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`."""
    how = config.aggregation
    return networks.assembled(
        config, lambda x, inputs, outputs, last: layer(x, Config(inputs, outputs, how))
    )
