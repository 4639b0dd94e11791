"""Mixture model network (MoNet).

    wₖ(u) = exp(−½ Σ_c (u_c − μ_kc)² / (σ_kc² + ε)),   uᵢⱼ = edge(i, j)
    yᵢ = W_root xᵢ + meanⱼ Σₖ wₖ(uᵢⱼ) Wₖ xⱼ + b

Paper: https://arxiv.org/abs/1611.08402. Parity: `torch_geometric.nn.GMMConv`. The
pseudo-coordinates uᵢⱼ are data, or (1/√dᵢ, 1/√dⱼ) where edges have no features.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.monet.Config(inputs=8, outputs=3, edges=2)
>>> model = zoo.monet.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=rows([(0, 1), (1, 2)], torch.randn(2, 2))).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import gcn
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements

EPS = 1e-15


@dataclass(frozen=True)
class Config:
    """`edges` is the number of coordinates, `kernels` that of Gaussians."""

    inputs: int = 16
    outputs: int = 16
    edges: int = 2
    kernels: int = 3


def layer(x: Atom, config: Config, edge: Atom = R.edge) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `out(i)`."""
    d, m, c = config.inputs, config.outputs, config.edges
    away = F.square(edge(V.I, V.J) - W.mean(V.K)[c,])
    narrow = F.inverse(F.square(W.width(V.K)[c,]) + EPS)
    return [
        (R.gauss(V.I, V.J, V.K) <= (away * narrow)[W.factor[[[-0.5] * c]].fixed()]) | [F.exp],
        R.mapped(V.J, V.K) <= x(V.J)[W.weight(V.K)[m, d]],
        (R.message(V.I, V.J) <= (R.gauss(V.I, V.J, V.K), R.mapped(V.J, V.K))) | [F.product],
        (R.mean(V.I) <= R.message(V.I, V.J)) | [F.avg_agg],
        R.out(V.I) <= (x(V.I)[W["root.weight"][m, d]], W.bias[m,].filled(0.0)),
        R.out(V.I) <= R.mean(V.I),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i with its coordinates; derives `out(i)`."""
    return Program(layer(R.x, config), domains={V.K: config.kernels})


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    kernels: int = 3


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`."""
    coordinates, edge, size = _coordinates(config)

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        return layer(x, Config(inputs, outputs, size, config.kernels), edge)

    return networks.assembled(config, made, *coordinates, domains={V.K: config.kernels})


def _coordinates(config: Network) -> tuple[Statements, Atom, int]:
    """Those of the data, or of degrees."""
    if config.edges:
        return [], R.edge, config.edges
    inverse = [F.inverse(F.sqrt(R.degree(v))) for v in (V.I, V.J)]
    place = R.place(V.I, V.J) <= (F.concat(*inverse), R._edge(V.I, V.J))
    return [*gcn.normalised(), place], R.place, 2
