"""Graph Transformer of GPS: message passing beside attention to all nodes.

    mᵢ = norm(xᵢ + dropout(GINE(x, e)ᵢ)),   tᵢ = norm(xᵢ + dropout(attention(x)ᵢ))
    hᵢ = mᵢ + tᵢ,   yᵢ = norm(hᵢ + W₂ relu(W₁ hᵢ))

Paper: https://arxiv.org/abs/2205.12454. Parity: `torch_geometric.nn.GPSConv` with `GINEConv`. A
node attends to all nodes of its graph; random-walk encodings are `position(i)`.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.gps.Config(size=8, heads=2, edges=4)
>>> model = zoo.gps.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=rows([(0, 1), (1, 2)], torch.randn(2, 4))).shape
torch.Size([4, 8])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, scope
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo import gine
from edgewise.zoo import network as networks
from edgewise.zoo.network import normed
from edgewise.zoo.parts import Statements, affine, affine_of, attention, dropped


@dataclass(frozen=True)
class Config:
    """`edges` is the size of `edge(i, j)`; with 0 it is that of `x` and added as it is."""

    size: int = 16
    heads: int = 4
    edges: int = 4
    norm: str = "batch"
    dropout: float = 0.0
    attention_dropout: float = 0.0


def layer(x: Atom, config: Config, edge: Atom = R.edge) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `out(i)`."""
    d = config.size
    mixed = affine_of(R.heads(V.I), "attended", d, d)
    return [
        *attention(x, R.heads, d, config.heads, p=config.attention_dropout),
        *beside(x, mixed, config, edge),
    ]


def beside(x: Atom, attended: Expression, config: Config, edge: Atom = R.edge) -> Statements:
    """Message passing beside what rows attended to, and the hidden layer; derives `out(i)`."""
    d, p = config.size, config.dropout
    sizes = gine.Config(d, d, d, edges=config.edges)
    hidden = affine(R.both(V.I), "mlp", d, 2 * d)
    fed = dropped(affine_of(R.mlp(V.I), "fed", 2 * d, d), p)
    return [
        *scope("local")(gine.layer(x, sizes, edge)),
        R.both(V.I)
        <= (
            normed(x(V.I) + dropped(R["local.out"](V.I), p), "norm_local", d, config.norm),
            normed(x(V.I) + dropped(attended, p), "norm_attention", d, config.norm),
        ),
        (R.mlp(V.I) <= hidden) | ([F.relu, F.dropout(p)] if p else [F.relu]),
        R.out(V.I) <= normed(R.both(V.I) + fed, "norm_out", d, config.norm),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i with a vector; derives `out(i)`."""
    return Program(layer(R.x, config), domains={V.H: config.heads})


@dataclass(frozen=True, kw_only=True)
class Network(networks.BlockNetwork):
    """Rows and edges are mapped to `hidden` features first."""

    layers: int = 10
    heads: int = 4
    attention_dropout: float = 0.0
    task: str = "graph"


def network(config: Network) -> Program:
    """Reads `x(i)`, `edge(i, j)` and, with `positions`, `position(i)`."""
    sizes = Config(
        config.hidden, config.heads, 0, config.norm, config.dropout, config.attention_dropout
    )
    return networks.assembled(
        config,
        lambda x, inputs, outputs, last: layer(x, sizes, R.bond),
        networks.bonds(config),
        domains={V.H: config.heads},
        bare="out",
    )
