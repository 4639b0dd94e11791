"""Graph Networks block: edges, nodes and a global vector are updated in turn.

    e′ᵢⱼ = φ([eᵢⱼ; xᵢ; xⱼ; u]),   x′ᵢ = φ([meanⱼ e′ᵢⱼ; xᵢ; u]),   u′ = φ([mean e′; mean x′; u])
    φ(z) = W₂ relu(W₁ z + b₁) + b₂, one for each

Paper: https://arxiv.org/abs/1806.01261, of which other layers are special cases. Parity:
`torch_geometric.nn.MetaLayer`. The mean of no edges is 0.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.graph_nets.Config(inputs=8, edges=4, globals=2, hidden=8, outputs=3)
>>> model = zoo.graph_nets.program(config).compile(R.out, seed=0)
>>> model(
...     x=torch.randn(4, 8), edge=rows([(0, 1), (1, 2)], torch.randn(2, 4)), u=torch.randn(2)
... ).shape
torch.Size([4, 3])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Variable
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements, affine


@dataclass(frozen=True)
class Config:
    """Sizes of `x(i)`, `edge(i, j)` and `u`; what is derived has `outputs` features each."""

    inputs: int = 16
    edges: int = 4
    globals: int = 4
    hidden: int = 16
    outputs: int = 16


def layer(x: Atom, edge: Atom, u: Atom, config: Config) -> Statements:
    """Derives `edge_out(i, j)`, `out(i)` and `global_out`."""
    d, m, n = config.inputs, config.outputs, config.globals
    none = W.none[m,].filled(0.0).fixed()
    pair = F.concat(edge(V.I, V.J), x(V.I), x(V.J), u)
    return [
        *_mlp(R.edge_out, (V.I, V.J), pair, config.edges + 2 * d + n, config),
        (R.received(V.I) <= R.edge_out(V.I, V.J)) | [F.avg_agg],
        R.received(V.I) <= (none, R.hidden[x.relation](V.I)),
        *_mlp(R.out, (V.I,), F.concat(R.received(V.I), x(V.I), u), m + d + n, config),
        (R.edge_mean <= R.edge_out(V.I, V.J)) | [F.avg_agg],
        R.edge_mean <= (none, R.hidden[u.relation]),
        (R.node_mean <= R.out(V.I)) | [F.avg_agg],
        *_mlp(R.global_out, (), F.concat(R.edge_mean, R.node_mean, u), 2 * m + n, config),
    ]


def _mlp(
    y: Atom, keys: tuple[Variable, ...], z: Expression, size: int, config: Config
) -> Statements:
    name = y.relation
    hidden = R[f"{name}_hidden"]
    return [
        (hidden(*keys) <= affine(z, f"{name}.first", size, config.hidden)) | [F.relu],
        y(*keys) <= affine(hidden(*keys), f"{name}.second", config.hidden, config.outputs),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)`, `edge(i, j)` and `u`; derives `edge_out(i, j)`, `out(i)` and `global_out`."""
    return Program(layer(R.x, R.edge, R.u, config))


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    """The global vector begins as zeros."""

    encode: bool = True
    head: int = 1


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)` with a vector."""
    d = config.hidden
    start = [
        networks.bonds(config),
        R.start <= W.start[d,].filled(0.0).fixed(),
    ]
    read = [(R.bond, R.start)]
    read += [(R[f"layer.{k}.edge_out"], R[f"layer.{k}.global_out"]) for k in range(config.layers)]
    before = iter(read)

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        return layer(x, *next(before), Config(inputs, d, d, d, outputs))

    return networks.assembled(config, made, *start)
