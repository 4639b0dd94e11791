"""Graph attention network.

    zₕᵢ = Wₕ xᵢ
    αₕᵢⱼ = softmax_{j ∈ N(i) ∪ {i}} leaky_relu(aₕ · zₕᵢ + a′ₕ · zₕⱼ)
    yᵢ = ∥ₕ Σⱼ αₕᵢⱼ zₕⱼ + b

Paper: https://arxiv.org/abs/1710.10903. Parity: `torch_geometric.nn.GATConv`. Every row of `x`
has a self-loop, so a node without edges gives its own zₕᵢ, as in PyG.
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import Statements, dropped, neighbourhood


@dataclass(frozen=True)
class Config:
    """`outputs` is the size of one head."""

    inputs: int = 16
    outputs: int = 4
    heads: int = 4
    slope: float = 0.2
    dropout: float = 0.0


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `neighbour(i, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    return [
        R.z(V.H, V.I) <= x(V.I)[W.weight(V.H)[m, d]],
        (
            R.alpha(V.H, V.I, V.J)
            <= (
                R.z(V.H, V.I)[W.target(V.H)[1, m]],
                R.z(V.H, V.J)[W.source(V.H)[1, m]],
                R._neighbour(V.I, V.J),
            )
        )
        | [F.sum, F.leaky_relu(config.slope), F.softmax_agg(agg_terms=[V.J])],
        *mixed(R.z, config),
    ]


def mixed(z: Atom, config: Config) -> Statements:
    """Neighbours by their weights α, heads concatenated, and a bias."""
    alpha, size = dropped(R.alpha(V.H, V.I, V.J), config.dropout), config.heads * config.outputs
    return [
        (R.context(V.H, V.I) <= (alpha, z(V.H, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(V.H, V.I)) | [F.concat_agg],
        R.out(V.I) <= (R.heads(V.I), W.bias[size,].filled(0.0)),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    rules = [*neighbourhood(R.x, R.edge, R.neighbour), *layer(R.x, config)]
    return Program(rules, domains={V.H: config.heads})
