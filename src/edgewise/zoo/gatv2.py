"""Graph attention with scores that depend on the query (GATv2).

    sₕᵢ = Wₕ xᵢ + bₕ,   tₕᵢ = W′ₕ xᵢ + b′ₕ
    αₕᵢⱼ = softmax_{j ∈ N(i) ∪ {i}} aₕ · leaky_relu(tₕᵢ + sₕⱼ)
    yᵢ = ∥ₕ Σⱼ αₕᵢⱼ sₕⱼ + b, or the mean of the heads

Paper: https://arxiv.org/abs/2105.14491. Parity: `torch_geometric.nn.GATv2Conv`. Every row of `x`
has a self-loop, so a node without edges gives its own sₕᵢ, as in PyG.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.gatv2.Config(inputs=8, outputs=2, heads=4)
>>> model = zoo.gatv2.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
torch.Size([4, 8])
"""

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Variable
from edgewise.zoo.gat import Config, Network, mixed, of_layer
from edgewise.zoo.parts import Statements, neighbourhood


def layer(x: Atom, config: Config, h: Variable = V.H) -> Statements:
    """Reads `x(i)` and `neighbour(i, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    score = F.leaky_relu(config.slope)(R.target(h, V.I) + R.source(h, V.J))
    return [
        R.source(h, V.I)
        <= (x(V.I)[W["source.weight"](h)[m, d]], W["source.bias"](h)[m,].filled(0.0)),
        R.target(h, V.I)
        <= (x(V.I)[W["target.weight"](h)[m, d]], W["target.bias"](h)[m,].filled(0.0)),
        (R.alpha(h, V.I, V.J) <= (score[W.attention(h)[1, m]], R._neighbour(V.I, V.J)))
        | [F.softmax_agg(agg_terms=[V.J])],
        *mixed(R.source, config, h),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    rules = [*neighbourhood(R.x, R.edge, R.neighbour), *layer(R.x, config)]
    return Program(rules, domains={V.H: config.heads})


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`."""
    return of_layer(config, layer)
