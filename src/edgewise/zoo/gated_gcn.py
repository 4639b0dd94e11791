"""Gated graph convolutional network (GatedGCN), with edge features.

    êᵢⱼ = A eᵢⱼ + B xᵢ + C xⱼ,   ηᵢⱼ = σ(êᵢⱼ) / (Σₖ σ(êᵢₖ) + ε)
    yᵢ = U xᵢ + Σⱼ ηᵢⱼ ⊙ V xⱼ, and the edges of the next layer are êᵢⱼ

Papers: https://arxiv.org/abs/1711.07553, https://arxiv.org/abs/2003.00982. In a network rows and
edges have a norm, a relu and a residual connection. A node without edges gives U xᵢ.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.gated_gcn.Config(inputs=8, outputs=3, edges=5)
>>> model = zoo.gated_gcn.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=rows([(0, 1), (1, 2)], torch.randn(2, 5))).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo import network as networks
from edgewise.zoo.network import normed
from edgewise.zoo.parts import Statements, affine, dropped

EPS = 1e-6


@dataclass(frozen=True)
class Config:
    inputs: int = 16
    outputs: int = 16
    edges: int = 16


def layer(x: Atom, edge: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `edge_out(i, j)` and `out(i)`."""
    d, m = config.inputs, config.outputs
    total = F.inverse(R.total(V.I) + EPS)
    return [
        R.target(V.I) <= affine(x(V.I), "target", d, m),
        R.source(V.I) <= affine(x(V.I), "source", d, m),
        R.value(V.I) <= affine(x(V.I), "value", d, m),
        R.edge_out(V.I, V.J)
        <= (*affine(edge(V.I, V.J), "edge", config.edges, m), R.target(V.I), R.source(V.J)),
        (R.gate(V.I, V.J) <= R.edge_out(V.I, V.J)) | [F.sigmoid],
        R.total(V.I) <= R.gate(V.I, V.J),
        (R.gated(V.I) <= (R.gate(V.I, V.J), R.value(V.J))) | [F.elproduct],
        R.out(V.I) <= affine(x(V.I), "own", d, m),
        R.out(V.I) <= R.gated(V.I) * total,
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i with a vector; derives `out(i)`."""
    return Program(layer(R.x, R.edge, config))


@dataclass(frozen=True, kw_only=True)
class Network(networks.BlockNetwork):
    """Rows and edges are mapped to `hidden` features first."""


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)` with a vector."""
    d = config.hidden
    before = iter([R.bond, *(R[f"layer.{k}.edge_state"] for k in range(config.layers))])

    def relu(y: Expression, name: str) -> Expression:
        return dropped(F.relu(normed(y, name, d, config.norm)), config.dropout)

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        edge = next(before)
        state = relu(R.edge_out(V.I, V.J), "edge_state")
        rules: Statements = [R.edge_state(V.I, V.J) <= edge(V.I, V.J) + state]
        more: Statements = [R.state(V.I) <= x(V.I) + relu(R.out(V.I), "state")]
        return [*layer(x, edge, Config(d, d, d)), *rules, *more]

    return networks.assembled(config, made, networks.bonds(config), bare="state")
