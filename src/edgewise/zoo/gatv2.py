"""Graph attention with scores that depend on the query (GATv2).

    sₕᵢ = Wₕ xᵢ + bₕ,   tₕᵢ = W′ₕ xᵢ + b′ₕ
    αₕᵢⱼ = softmax_{j ∈ N(i) ∪ {i}} aₕ · leaky_relu(tₕᵢ + sₕⱼ)
    yᵢ = ∥ₕ Σⱼ αₕᵢⱼ sₕⱼ + b

Paper: https://arxiv.org/abs/2105.14491. Parity: `torch_geometric.nn.GATv2Conv`. Every row of `x`
has a self-loop, so a node without edges gives its own sₕᵢ, as in PyG.
"""

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo.gat import Config, mixed
from edgewise.zoo.parts import Statements, neighbourhood


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `neighbour(i, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    score = F.leaky_relu(config.slope)(R.target(V.H, V.I) + R.source(V.H, V.J))
    return [
        R.source(V.H, V.I)
        <= (x(V.I)[W["source.weight"](V.H)[m, d]], W["source.bias"](V.H)[m,].filled(0.0)),
        R.target(V.H, V.I)
        <= (x(V.I)[W["target.weight"](V.H)[m, d]], W["target.bias"](V.H)[m,].filled(0.0)),
        (R.alpha(V.H, V.I, V.J) <= (score[W.attention(V.H)[1, m]], R._neighbour(V.I, V.J)))
        | [F.softmax_agg(agg_terms=[V.J])],
        *mixed(R.source, config),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    rules = [*neighbourhood(R.x, R.edge, R.neighbour), *layer(R.x, config)]
    return Program(rules, domains={V.H: config.heads})
