"""Edge Transformer: a state for every pair of nodes, updated along all paths of two pairs.

    αₕᵢₗⱼ = softmaxₗ(Qₕ xᵢₗ · Kₕ xₗⱼ / √d),   aᵢⱼ = ∥ₕ Σₗ αₕᵢₗⱼ (Vₕ xᵢₗ ⊙ V′ₕ xₗⱼ)
    x′ᵢⱼ = xᵢⱼ + O a(norm(x))ᵢⱼ,   yᵢⱼ = x′ᵢⱼ + W₂ relu(W₁ norm(x′ᵢⱼ))

Papers: https://arxiv.org/abs/2112.00578, https://arxiv.org/abs/2401.10119 (on graphs). The rule
of α is ternary: n³ groundings for n nodes. In a network the state of a pair begins with those of
its nodes and of the edge; that of a node ends as the mean over j of relu(A xᵢⱼ + B xⱼᵢ + b).
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.edge_transformer.Config(size=8, heads=2)
>>> model = zoo.edge_transformer.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 4, 8)).shape
torch.Size([4, 4, 8])
"""

import math
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom, Statement
from edgewise.zoo import network as networks
from edgewise.zoo.graph_readouts import logits
from edgewise.zoo.parts import Statements, affine, affine_of, dropped, head_size, layer_norm_of


@dataclass(frozen=True)
class Config:
    """Pairs have `size` features, the hidden layer twice as many."""

    size: int = 16
    heads: int = 4
    dropout: float = 0.0


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i, j)` of all pairs, derives `out(i, j)`."""
    size, d, p = config.size, head_size(config.size, config.heads), config.dropout
    first = {R.q: (V.I, V.L), R.left: (V.I, V.L)}
    second = {R.k: (V.L, V.J), R.right: (V.L, V.J)}
    alpha = R.alpha(V.H, V.I, V.J, V.L)
    read: list[Statement] = [
        y(V.H, *keys) <= R.normed(*keys)[W[f"{y.relation}.weight"](V.H)[d, size]]
        for y, keys in (first | second).items()
    ]
    return [
        R.normed(V.I, V.J) <= layer_norm_of(x(V.I, V.J), "normed", size),
        *read,
        R.scale[1 / math.sqrt(d)].fixed(),
        (alpha <= (R.scale, R.k(V.H, V.L, V.J).T, R.q(V.H, V.I, V.L)))
        | [F.product, F.softmax_agg(agg_terms=[V.L])],
        R.context(V.H, V.I, V.J) <= alpha * (R.left(V.H, V.I, V.L) * R.right(V.H, V.L, V.J)),
        (R.heads(V.I, V.J) <= R.context(V.H, V.I, V.J)) | [F.concat_agg],
        R.mixed(V.I, V.J)
        <= x(V.I, V.J) + dropped(affine_of(R.heads(V.I, V.J), "mixed", size, size), p),
        (
            R.mlp(V.I, V.J)
            <= affine(layer_norm_of(R.mixed(V.I, V.J), "middle", size), "mlp", size, 2 * size)
        )
        | [F.relu],
        R.out(V.I, V.J)
        <= R.mixed(V.I, V.J) + dropped(affine_of(R.mlp(V.I, V.J), "out", 2 * size, size), p),
    ]


def program(config: Config) -> Program:
    """Reads `x(i, j)` of all pairs, with a vector; derives `out(i, j)`."""
    return Program(layer(R.x, config), domains={V.H: config.heads})


@dataclass(frozen=True, kw_only=True)
class Network(networks.BlockNetwork):
    """Nodes are mapped to `hidden` features first."""

    layers: int = 3
    heads: int = 4
    norm: str = "layer"
    task: str = "graph"

    def __post_init__(self) -> None:
        super().__post_init__()
        networks.one_of("norm", self.norm, ("layer",))
        networks.without_jump(self, "states of nodes come after the last layer")


def network(config: Network) -> Program:
    """Reads `x(i)`, `edge(i, j)` with or without a vector and, with `positions`, `position(i)`."""
    d, sizes = config.hidden, Config(config.hidden, config.heads, config.dropout)
    rules, x, size = networks.encoded(config)
    ends: Statement = R.pair_0(V.I, V.J) <= (
        x(V.I)[W["pair_0.first"][d, size]],
        x(V.J)[W["pair_0.second"][d, size]],
    )
    rules += [*networks.pairs(config, R.pair_0), ends]
    pair = R.pair_0
    for k in range(config.layers):
        rules += scope(f"layer.{k}")(layer(pair, sizes))
        pair = R[f"layer.{k}.out"]
    weight, bias = affine(pair(V.I, V.J), "state", d, d)
    mean: Statement = (R.state(V.I) <= (weight, pair(V.J, V.I)[W["state.second"][d, d]], bias)) | [
        F.relu,
        F.avg_agg,
    ]
    rules += [mean, *logits(config, R.state, ())]
    return Program(rules, domains={V.H: config.heads})
