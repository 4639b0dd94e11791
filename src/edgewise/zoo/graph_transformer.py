"""Graph Transformer: attention along edges, scores by edge features, which are updated too.

    ŵₕᵢⱼ = (Qₕ xᵢ ⊙ Kₕ xⱼ / √d) ⊙ Eₕ eᵢⱼ,   αₕᵢⱼ = softmaxⱼ Σ_c ŵₕᵢⱼ_c
    x̂ᵢ = norm(xᵢ + O ∥ₕ Σⱼ αₕᵢⱼ Vₕ xⱼ),   êᵢⱼ = norm(eᵢⱼ + O′ ∥ₕ ŵₕᵢⱼ)
    yᵢ = norm(x̂ᵢ + W₂ relu(W₁ x̂ᵢ)), and so for edges

Paper: https://arxiv.org/abs/2012.09699. A node without edges is not changed by attention.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.graph_transformer.Config(size=8, heads=2)
>>> model = zoo.graph_transformer.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=rows([(0, 1), (1, 2)], torch.randn(2, 8))).shape
torch.Size([4, 8])
"""

import math
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Variable
from edgewise.zoo import network as networks
from edgewise.zoo.network import normed
from edgewise.zoo.parts import Statements, affine, dropped, head_size, heads


@dataclass(frozen=True)
class Config:
    """Rows and edges have `size` features."""

    size: int = 16
    heads: int = 4
    norm: str = "batch"
    dropout: float = 0.0


def layer(x: Atom, edge: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `edge(i, j)`, derives `edge_out(i, j)` and `out(i)`."""
    size, d = config.size, head_size(config.size, config.heads)
    by_edge = edge(V.I, V.J)[W["e.weight"](V.H)[d, size]]
    ones = W.ones[[[1.0] * d]].fixed()
    return [
        *(rule for y in (R.q, R.k, R.v) for rule in heads(x, y, size, d, bias=False)),
        R.score(V.H, V.I, V.J) <= R.q(V.H, V.I) * R.k(V.H, V.J) * by_edge * (1 / math.sqrt(d)),
        (R.alpha(V.H, V.I, V.J) <= R.score(V.H, V.I, V.J)[ones]) | [F.softmax_agg(agg_terms=[V.J])],
        (R.context(V.H, V.I) <= (R.alpha(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(V.H, V.I)) | [F.concat_agg],
        (R.edge_heads(V.I, V.J) <= R.score(V.H, V.I, V.J)) | [F.concat_agg],
        R.sum(V.I) <= x(V.I),
        R.sum(V.I) <= _mapped(R.heads(V.I), "mixed", size, size, config),
        R.edge_sum(V.I, V.J)
        <= edge(V.I, V.J) + _mapped(R.edge_heads(V.I, V.J), "edge_mixed", size, size, config),
        *_fed(R.edge_sum, R.edge_out, (V.I, V.J), config),
        *_fed(R.sum, R.out, (V.I,), config),
    ]


def _mapped(x: Expression, name: str, inputs: int, outputs: int, config: Config) -> Expression:
    weight, bias = affine(x, name, inputs, outputs)
    return dropped(weight + bias, config.dropout)


def _fed(x: Atom, y: Atom, keys: tuple[Variable, ...], config: Config) -> Statements:
    """A norm, a hidden layer of twice the size, a residual connection and a norm."""
    name, size = y.relation, config.size
    mid, hidden = R[f"{name}_mid"], R[f"{name}_hidden"]
    fed = _mapped(hidden(*keys), f"{name}_fed", 2 * size, size, config)
    return [
        mid(*keys) <= normed(x(*keys), mid.relation, size, config.norm),
        (hidden(*keys) <= affine(mid(*keys), hidden.relation, size, 2 * size)) | [F.relu],
        y(*keys) <= normed(mid(*keys) + fed, name, size, config.norm),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i with a vector; derives `out(i)`."""
    return Program(layer(R.x, R.edge, config), domains={V.H: config.heads})


@dataclass(frozen=True, kw_only=True)
class Network(networks.BlockNetwork):
    """Laplacian eigenvectors are `position(i)`."""

    heads: int = 4


def network(config: Network) -> Program:
    """Reads `x(i)`, `edge(i, j)` with a vector and, with `positions`, `position(i)`."""
    sizes = Config(config.hidden, config.heads, config.norm, config.dropout)
    before = iter([R.bond, *(R[f"layer.{k}.edge_out"] for k in range(config.layers))])
    return networks.assembled(
        config,
        lambda x, inputs, outputs, last: layer(x, next(before), sizes),
        networks.bonds(config),
        domains={V.H: config.heads},
        bare="out",
    )
