"""Relational graph convolutional network.

    yᵢ = W_root xᵢ + b + Σₜ Wₜ mean_{j ∈ Nₜ(i)} xⱼ,    Wₜ = Σ_b cₜ_b B_b with a basis

Paper: https://arxiv.org/abs/1703.06103. Parity: `torch_geometric.nn.RGCNConv`. The root and the
neighbours are two rules: a node derives no mean for a type of edge that it lacks, so that type
adds nothing, as in PyG.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.rgcn.Config(inputs=8, outputs=3, types=2)
>>> model = zoo.rgcn.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=[(0, 1, 1), (2, 0, 3)]).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass
from typing import Any

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Variable
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config:
    """`types` is a number of types, called 0, 1, ..., or their names."""

    inputs: int = 16
    outputs: int = 16
    types: int | tuple[str, ...] = 4
    bases: int | None = None


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, t, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    return [
        (R.mean(V.I, V.T) <= (x(V.J), R._edge(V.I, V.T, V.J))) | [F.avg_agg],
        R.out(V.I) <= (x(V.I)[W.root[m, d]], W.bias[m,].filled(0.0)),
        *(_own_matrices if config.bases is None else _shared_basis)(m, d),
    ]


def _own_matrices(m: int, d: int) -> Statements:
    return [R.out(V.I) <= R.mean(V.I, V.T)[W.relation(V.T)[m, d]]]


def _shared_basis(m: int, d: int) -> Statements:
    return [
        R.mixed(V.I, V.B) <= R.mean(V.I, V.T)[W.coefficient(V.T, V.B)[1,]],
        R.out(V.I) <= R.mixed(V.I, V.B)[W.basis(V.B)[m, d]],
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, t, j)`, from j to i with type t; derives `out(i)`."""
    return Program(layer(R.x, config), domains=_domains(config))


def _domains(config: Any) -> dict[Variable, int | tuple[str, ...]]:
    return {V.T: config.types} | ({} if config.bases is None else {V.B: config.bases})


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    """`types` of edges: a number, or names; all of them are computed together."""

    types: int | tuple[str, ...] = 4
    bases: int | None = None


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, t, j)`."""

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        return layer(x, Config(inputs, outputs, config.types, config.bases))

    return networks.assembled(config, made, domains=_domains(config))
