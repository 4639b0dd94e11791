"""Graph attention network.

    zₕᵢ = Wₕ xᵢ
    αₕᵢⱼ = softmax_{j ∈ N(i) ∪ {i}} leaky_relu(aₕ · zₕᵢ + a′ₕ · zₕⱼ)
    yᵢ = ∥ₕ Σⱼ αₕᵢⱼ zₕⱼ + b, or the mean of the heads

Paper: https://arxiv.org/abs/1710.10903. Parity: `torch_geometric.nn.GATConv`. Every row of `x`
has a self-loop, so a node without edges gives its own zₕᵢ, as in PyG.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.gat.Config(inputs=8, outputs=2, heads=4)
>>> model = zoo.gat.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
torch.Size([4, 8])
"""

from collections.abc import Callable
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Variable
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements, dropped, head_size, neighbourhood


@dataclass(frozen=True)
class Config:
    """`outputs` is the size of one head; `concat` heads, or take their mean."""

    inputs: int = 16
    outputs: int = 4
    heads: int = 4
    slope: float = 0.2
    dropout: float = 0.0
    concat: bool = True


def layer(x: Atom, config: Config, h: Variable = V.H) -> Statements:
    """Reads `x(i)` and `neighbour(i, j)`, derives `out(i)`."""
    d, m = config.inputs, config.outputs
    return [
        R.z(h, V.I) <= x(V.I)[W.weight(h)[m, d]],
        (
            R.alpha(h, V.I, V.J)
            <= (
                R.z(h, V.I)[W.target(h)[1, m]],
                R.z(h, V.J)[W.source(h)[1, m]],
                R._neighbour(V.I, V.J),
            )
        )
        | [F.sum, F.leaky_relu(config.slope), F.softmax_agg(agg_terms=[V.J])],
        *mixed(R.z, config, h),
    ]


def mixed(z: Atom, config: Config, h: Variable = V.H) -> Statements:
    """Neighbours by their weights α, heads concatenated or in mean, and a bias."""
    alpha = dropped(R.alpha(h, V.I, V.J), config.dropout)
    size = config.heads * config.outputs if config.concat else config.outputs
    return [
        (R.context(h, V.I) <= (alpha, z(h, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(h, V.I)) | [F.concat_agg if config.concat else F.avg_agg],
        R.out(V.I) <= (R.heads(V.I), W.bias[size,].filled(0.0)),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    rules = [*neighbourhood(R.x, R.edge, R.neighbour), *layer(R.x, config)]
    return Program(rules, domains={V.H: config.heads})


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    """Heads share `hidden` features; the logits of nodes are the mean of `last_heads`."""

    heads: int = 8
    last_heads: int = 1
    attention_dropout: float = 0.0
    slope: float = 0.2
    activation: str = "elu"


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`; the paper has two layers, of 8 heads and of 1."""
    return of_layer(config, layer)


def of_layer(config: Network, layer_: Callable[..., Statements]) -> Program:
    """The network of a layer with heads, whose number differs in the last layer."""

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        heads = config.last_heads if last else config.heads
        size = outputs if last else head_size(outputs, heads)
        sizes = Config(inputs, size, heads, config.slope, config.attention_dropout, not last)
        return layer_(x, sizes, V.Last if last else V.H)

    domains = {V.H: config.heads} | ({V.Last: config.last_heads} if config.gives_logits else {})
    graph = neighbourhood(R.x, R.edge, R.neighbour)
    return networks.assembled(config, made, *graph, domains=domains)
