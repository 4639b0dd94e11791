"""Heterogeneous graph network: nodes and edges of several types, all of them in one rule.

    hᵢ⁰ = W_k xᵢ + b_k for a node of type k, whose features have a size of their own
    yᵢ = R_k hᵢ + c_k + Σₜ Wₜ mean_{j ∈ Nₜ(i)} hⱼ

Paper: https://arxiv.org/abs/1703.06103. Parity: `torch_geometric.nn.HeteroConv` of `SAGEConv`,
which `to_hetero` makes too; there R_k and c_k are the sums of those of all types of edges that end
in k. A type is a key, so 128 types of edges are one rule, not 128 modules.
`edgewise.data.typed_graph` reads a `HeteroData`.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.hetero.Config(inputs=8, outputs=3, kinds=2, types=2)
>>> model = zoo.hetero.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(3, 8), kind=[(0, 0), (1, 1), (2, 1)], edge=[(0, 1, 1), (2, 0, 0)]).shape
torch.Size([3, 3])
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgewise.errors import caller, safe_repr
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo import network as networks
from edgewise.zoo.block import BadConfig
from edgewise.zoo.parts import Statements, affine


@dataclass(frozen=True)
class Config:
    """The numbers of `kinds` of nodes and `types` of edges, called 0, 1, ..."""

    inputs: int = 16
    outputs: int = 16
    kinds: int = 2
    types: int = 4


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)`, `kind(i, k)` and `edge(i, t, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    own = x(V.I)[W.root(V.K)[m, d]]
    return [
        (R.mean(V.I, V.T) <= (x(V.J), R._edge(V.I, V.T, V.J))) | [F.avg_agg],
        R.out(V.I) <= (own, W.bias(V.K)[m,].filled(0.0), R._kind(V.I, V.K)),
        R.out(V.I) <= R.mean(V.I, V.T)[W.relation(V.T)[m, d]],
    ]


def program(config: Config) -> Program:
    """Reads `x(i)`, `kind(i, k)` and `edge(i, t, j)`, from j to i; derives `out(i)`."""
    return Program(layer(R.x, config), domains={V.K: config.kinds, V.T: config.types})


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    """`nodes` has the number of features of each kind of node; with 0 it has one learned vector."""

    nodes: Mapping[str, int] = field(default_factory=lambda: {"node": 16})
    types: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, size in self.nodes.items():
            if not isinstance(name, str) or type(size) is not int or size < 0:
                what = f"`nodes` has {safe_repr(size)} for {safe_repr(name)}"
                raise BadConfig(what, caller(), 'write `{"author": 16}`, the number of features')


def network(config: Network) -> Program:
    """Reads a relation of features for each kind of node, `kind(i, k)` and `edge(i, t, j)`.

    A kind `author` is read as `author(i)`; kinds are numbered as in `nodes`, and nodes of all of
    them together.
    """
    kinds, d = len(config.nodes), config.hidden
    rules: Statements = []
    for name, size in config.nodes.items():
        read: tuple[Expression, ...] = (W[f"{name}.bias"][d,], R.hidden[name](V.I))
        if size:
            read = affine(R[name](V.I), name, size, d)
        rules.append(R.encoded(V.I) <= read)

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        return layer(x, Config(inputs, outputs, kinds, config.types))

    domains = {V.K: kinds, V.T: config.types}
    return networks.assembled(config, made, domains=domains, start=(rules, R.encoded, d))
