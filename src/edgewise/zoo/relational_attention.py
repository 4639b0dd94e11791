"""Relational attention: nodes attend along vectors of edges, and the edges are updated too.

    qₕᵢⱼ = Q xᵢ + Q′ eᵢⱼ,   kₕᵢⱼ = K xⱼ + K′ eᵢⱼ,   vₕᵢⱼ = V xⱼ + V′ eᵢⱼ   (all with biases)
    αₕᵢⱼ = softmaxⱼ(qₕᵢⱼ · kₕᵢⱼ / √d),   aᵢ = ∥ₕ Σⱼ αₕᵢⱼ vₕᵢⱼ
    x′ᵢ = norm(xᵢ + O aᵢ),   yᵢ = norm(x′ᵢ + W₂ relu(W₁ x′ᵢ))
    e′ᵢⱼ = norm(eᵢⱼ + U₂ relu(U₁ [eᵢⱼ; eⱼᵢ; yⱼ; yᵢ])),   êᵢⱼ = norm(e′ᵢⱼ + U₄ relu(U₃ e′ᵢⱼ))

Paper: https://arxiv.org/abs/2210.05062 (Relational Transformer). Every node attends to every node
of its graph, so every pair has a vector: in a network a bias, and W eᵢⱼ more along an edge.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.relational_attention.Config(size=8, heads=2, edges=4)
>>> model = zoo.relational_attention.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(5, 8), edge=torch.randn(5, 5, 4)).shape
torch.Size([5, 8])
"""

import math
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Variable
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements, affine, affine_of, dropped, head_size, layer_norm_of


@dataclass(frozen=True)
class Config:
    """Rows have `size` features, pairs `edges`; hidden layers twice as many."""

    size: int = 16
    heads: int = 4
    edges: int = 16
    dropout: float = 0.0


def layer(x: Atom, edge: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, j)` of all pairs, derives `out(i)` and `edge_out(i, j)`."""
    size, d, p = config.size, head_size(config.size, config.heads), config.dropout
    mixed = dropped(affine_of(R.heads(V.I), "mixed", size, size), p)
    read = F.concat(edge(V.I, V.J), edge(V.J, V.I), R.out(V.J), R.out(V.I))
    sizes = 2 * config.edges + 2 * size, 2 * config.edges, config.edges
    return [
        *_projected(x, edge, config),
        (
            R.alpha(V.H, V.I, V.J)
            <= (R.scale, R.k(V.H, V.I, V.J).T, R.q(V.H, V.I, V.J))
        )
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        R.scale[1 / math.sqrt(d)].fixed(),
        (R.context(V.H, V.I) <= (R.alpha(V.H, V.I, V.J), R.v(V.H, V.I, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(V.H, V.I)) | [F.concat_agg],
        R.attended(V.I) <= layer_norm_of(x(V.I) + mixed, "attended", size),
        *_fed(R.attended, R.attended(V.I), R.out, (V.I,), (size, 2 * size, size), p),
        *_fed(edge, read, R.edge_mid, (V.I, V.J), sizes, p),
        *_fed(R.edge_mid, R.edge_mid(V.I, V.J), R.edge_out, (V.I, V.J),
              (config.edges, *sizes[1:]), p),
    ]  # fmt: skip


def _projected(x: Atom, edge: Atom, config: Config) -> Statements:
    """Queries, keys and values of pairs: maps of a node and of the edge."""
    d = head_size(config.size, config.heads)
    rules: Statements = []
    for y, node in ((R.q, V.I), (R.k, V.J), (R.v, V.J)):
        name = y.relation
        rules.append(
            y(V.H, V.I, V.J)
            <= (
                x(node)[W[f"{name}.weight"](V.H)[d, config.size]],
                edge(V.I, V.J)[W[f"{name}.edge"](V.H)[d, config.edges]],
                W[f"{name}.bias"](V.H)[d,],
            )
        )
    return rules


def _fed(
    x: Atom,
    read: Expression,
    y: Atom,
    keys: tuple[Variable, ...],
    sizes: tuple[int, int, int],
    p: float,
) -> Statements:
    """y = norm(x + W₂ relu(W₁ read + b₁) + b₂)."""
    name, hidden = y.relation, R[f"{y.relation}_hidden"]
    added = dropped(affine_of(hidden(*keys), f"{name}_fed", sizes[1], sizes[2]), p)
    return [
        (hidden(*keys) <= affine(read, hidden.relation, sizes[0], sizes[1])) | [F.relu],
        y(*keys) <= layer_norm_of(x(*keys) + added, name, sizes[2]),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)` of all pairs, with a vector; derives `out(i)`."""
    return Program(layer(R.x, R.edge, config), domains={V.H: config.heads})


@dataclass(frozen=True, kw_only=True)
class Network(networks.BlockNetwork):
    """Rows and pairs are mapped to `hidden` features first; norms are inside the layers."""

    layers: int = 3
    heads: int = 4
    norm: str = "layer"

    def __post_init__(self) -> None:
        super().__post_init__()
        networks.one_of("norm", self.norm, ("layer",))


def network(config: Network) -> Program:
    """Reads `x(i)`, `edge(i, j)` with or without a vector and, with `positions`, `position(i)`."""
    d = config.hidden
    sizes = Config(d, config.heads, d, config.dropout)
    before = iter([R.pair_0, *(R[f"layer.{k}.edge_out"] for k in range(config.layers))])
    return networks.assembled(
        config,
        lambda x, inputs, outputs, last: layer(x, next(before), sizes),
        *networks.pairs(config, R.pair_0),
        domains={V.H: config.heads},
        bare="out",
    )
