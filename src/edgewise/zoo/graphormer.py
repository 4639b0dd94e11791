"""Graphormer: attention to all nodes, with biases by distances and by edges on shortest paths.

    hᵢ = W xᵢ + z_in[degree] + z_out[degree], and a token of the graph, which is learned
    sₕᵢⱼ = qₕᵢ · kₕⱼ / √d + bₕ[distance(i, j)] + meanₙ(wₕₙ · eₙ), eₙ the nth edge from i to j
    h′ = h + O attention(norm(h)),   y = h′ + W₂ gelu(W₁ norm(h′))

Paper: https://arxiv.org/abs/2106.05234. Biases are the same in all layers. The token of the graph
is `token("graph")` beside the nodes; its pairs have a bias of their own, and the logits of a graph
are those of its row. `facts` gives the relations that are computed from edges:
`distance(i, j, d)`, `path(i, j, n, k, l)`, `in_degree(i, d)` and `out_degree(i, d)`.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.graphormer.Config(size=8, heads=2, hidden=16)
>>> model = zoo.graphormer.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(5, 8), bias=torch.randn(2, 5, 5)).shape
torch.Size([5, 8])
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from edgewise.data.encodings import path_edges, shortest_paths
from edgewise.inputs.kinds import rows
from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom, Statement, Variable
from edgewise.zoo import network as networks
from edgewise.zoo.graph_readouts import READOUTS, logits, mlp
from edgewise.zoo.parts import Statements, affine, dropped, head_size, heads, layer_norm_of

GRAPH = "graph"  # the key of the token of a graph


@dataclass(frozen=True)
class Config:
    """Rows have `size` features, the hidden layer `hidden`."""

    size: int = 16
    heads: int = 4
    hidden: int = 32
    dropout: float = 0.0
    attention_dropout: float = 0.0


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)` and `bias(h, i, j)`, derives `out(i)`."""
    size, d, p = config.size, head_size(config.size, config.heads), config.dropout
    query = R.q(V.H, V.I)[1 / math.sqrt(d)].fixed()
    alpha = dropped(R.alpha(V.H, V.I, V.J), config.attention_dropout)
    mixed, shift = affine(R.heads(V.I), "mixed", size, size)
    fed, more = affine(R.mlp(V.I), "out", config.hidden, size)
    return [
        R.normed(V.I) <= layer_norm_of(x(V.I), "normed", size),
        *(rule for y in (R.q, R.k, R.v) for rule in heads(R.normed, y, size, d)),
        (R.alpha(V.H, V.I, V.J) <= (R.k(V.H, V.J).T @ query, R.bias(V.H, V.I, V.J)))
        | [F.softmax_agg(agg_terms=[V.J])],
        (R.context(V.H, V.I) <= (alpha, R.v(V.H, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(V.H, V.I)) | [F.concat_agg],
        R.attended(V.I) <= x(V.I) + dropped(mixed + shift, p),
        R.middle(V.I) <= layer_norm_of(R.attended(V.I), "middle", size),
        (R.mlp(V.I) <= affine(R.middle(V.I), "mlp", size, config.hidden)) | [F.gelu],
        R.out(V.I) <= R.attended(V.I) + dropped(fed + more, p),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and `bias(h, i, j)` of all pairs; derives `out(i)`."""
    return Program(layer(R.x, config), domains={V.H: config.heads})


@dataclass(frozen=True, kw_only=True)
class Network(networks.BlockNetwork):
    """Degrees count up to `degrees`, distances up to `farthest`, as do the edges of a path."""

    layers: int = 6
    heads: int = 4
    norm: str = "layer"
    activation: str = "gelu"
    attention_dropout: float = 0.0
    farthest: int = 8
    degrees: int = 8
    task: str = "graph"
    readout: str = "token"
    head: int = 1
    readouts: ClassVar[Sequence[str]] = ("token", *READOUTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        networks.one_of("norm", self.norm, ("layer",))
        networks.without_jump(self, "here the token of the graph is read out")


def facts(config: Network, edge: Tensor, nodes: int) -> dict[str, rows]:
    """The relations of a graph that are computed from its edges (2, e)."""
    distance = shortest_paths(edge, nodes, most=config.farthest)
    near = torch.ones_like(distance).nonzero().T
    there = torch.arange(nodes)
    counts = (torch.bincount(edge[at], minlength=nodes).clamp_max(config.degrees) for at in (0, 1))
    into, out = (rows(torch.stack([there, count])) for count in counts)
    return {
        "distance": rows(torch.cat([near, distance.reshape(1, -1)])),
        "path": rows(path_edges(edge, nodes, most=config.farthest)),
        "in_degree": into,
        "out_degree": out,
    }


def network(config: Network) -> Program:
    """Reads `x(i)`, `edge(i, j)`, the relations of `facts` and, with `positions`, `position(i)`."""
    size = config.hidden
    sizes = Config(size, config.heads, size, config.dropout, config.attention_dropout)
    rules, x, _ = networks.encoded(config)
    rules += [*_tokens(x, size), *_biases(config)]
    token = R.token
    for k in range(config.layers):
        made = scope(f"layer.{k}")(layer(token, sizes))
        rules, token = [*rules, *made], R[f"layer.{k}.out"]
    rules.append(R.final(V.I) <= layer_norm_of(token(V.I), "final", size))
    if config.task == "graph" and config.readout == "token":
        rules += mlp(config, R.final(GRAPH), size, ())
    else:
        rules += [R.node(V.I) <= (R.final(V.I), R._x(V.I)), *logits(config, R.node, ())]
    return Program(rules, domains=_domains(config))


def _domains(config: Network) -> dict[Variable, int]:
    return {
        V.H: config.heads,
        V.D: config.farthest + 2,
        V.N: config.farthest,
        V.In: config.degrees + 1,
        V.Out: config.degrees + 1,
    }


def _tokens(x: Atom, size: int) -> Statements:
    """Rows of nodes with vectors of their degrees, and that of the graph."""
    return [
        R.token(V.I) <= (x(V.I), W.in_degree(V.In)[size,], R._in_degree(V.I, V.In)),
        R.token(V.I) <= (W.out_degree(V.Out)[size,], R._out_degree(V.I, V.Out)),
        R.token(GRAPH) <= W.graph[size,],
    ]


def _biases(config: Network) -> Statements:
    """`bias(h, i, j)` of all pairs of tokens: distances, paths, and pairs of the graph's token."""
    bias, near = R.bias(V.H, V.I, V.J), W.distance(V.D, V.H)[1,]
    of_graph = W.graph_bias(V.H)[1,]
    weight = W.path(V.N, V.H)[1, config.edges or 1]
    step = (R.edge(V.K, V.L)[weight],) if config.edges else (weight, R._edge(V.K, V.L))
    nth = R._path(V.I, V.J, V.N, V.K, V.L)
    path: Statement = (R.along(V.H, V.I, V.J) <= (*step, nth)) | [F.avg_agg]
    return [
        bias <= (near, R._distance(V.I, V.J, V.D)),
        path,
        bias <= R.along(V.H, V.I, V.J),
        R.bias(V.H, GRAPH, V.J) <= (of_graph, R._token(V.J)),
        R.bias(V.H, V.I, GRAPH) <= (of_graph, R._x(V.I)),
    ]
