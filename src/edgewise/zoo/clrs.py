"""Algorithmic reasoning: one step of an algorithm on a graph, learned from its hints.

    zᵢ = relu(W xᵢ + b)                                  xᵢ: inputs and hints of node i, such as d
    chooseᵢ = w · relu(C xᵢ + b)                         which node the step is about (if one is)
    mᵢⱼ = W₂ relu(W₁ zᵢ + W₃ zⱼ + W₄ eᵢⱼ + b)            for every edge, with itself
    hᵢ = relu(W₅ zᵢ + W₆ maxⱼ mᵢⱼ + b)
    outᵢ = W₇ hᵢ + W₈ maxⱼ mᵢⱼ + b                       hints after the step: masks and numbers
    shareᵢ = softmaxⱼ(v · relu(P₁ hᵢ + P₂ zⱼ + P₃ eᵢⱼ + P₄ mᵢⱼ + b))   pointers, such as parents

`picked(i)` is 1 for the node that was chosen: in training that of the hint, then the largest
`choose`. Steps are repeated on their own hints.

Paper: https://arxiv.org/abs/2205.15659 (CLRS), max aggregation and hints as there.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.clrs.Config(nodes=6, edges=3, outputs=2, size=8)
>>> model = zoo.clrs.program(config).compile(R.out, seed=0)
>>> model(
...     x=torch.randn(4, 6), edge=rows([(i, (i + 1) % 4) for i in range(4)], torch.randn(4, 3))
... ).shape
torch.Size([4, 2])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Expression
from edgewise.zoo.parts import Statements, affine


@dataclass(frozen=True)
class Config:
    """Sizes of `x(i)`, `edge(i, j)` and `out(i)`; `chooses`: a step is about one node."""

    nodes: int = 6
    edges: int = 3
    outputs: int = 2
    size: int = 32
    chooses: bool = False


def pair(config: Config, name: str, first: Expression, *more: Expression) -> Expression:
    """relu of a sum of linear maps of a node, its neighbour, their edge, and more."""
    d = config.size
    total = first[f"{name}.own" : d, d] + R.node(V.J)[f"{name}.near" : d, d]
    total = total + R.edge(V.I, V.J)[f"{name}.edge" : d, config.edges] + W[f"{name}.bias"][d,]
    for item in more:
        total = total + item[f"{name}.message" : d, d]
    return F.relu(total)


def choice(config: Config) -> Statements:
    """`choose(i)` of x(i), and what is picked as a part of the node."""
    if not config.chooses:
        return [R.seen(V.I) <= R.x(V.I)["node.weight" : config.size, config.nodes]]
    hidden = F.relu(F.sum(*affine(R.x(V.I), "choose.hidden", config.nodes, config.size)))
    return [
        R.choose(V.I) <= affine(hidden, "choose", config.size, 1),
        R.seen(V.I) <= R.x(V.I)["node.weight" : config.size, config.nodes],
        R.seen(V.I) <= R.picked(V.I)["node.picked" : config.size, 1],
    ]


def program(config: Config) -> Program:
    """Reads `x(i)`, `edge(i, j)` and, if a node is chosen, `picked(i)`.

    Derives `out(i)`, `share(i, j)` and `choose(i)`.
    """
    d = config.size
    state = (R.node(V.I)["state.own":d, d], R.most(V.I)["state.most":d, d], W["state.bias"][d,])
    out = (R.state(V.I)["out.weight" : config.outputs, d],
           R.most(V.I)["out.most" : config.outputs, d], W["out.bias"][config.outputs,])  # fmt: skip
    pointer = pair(config, "pointer", R.state(V.I), R.message(V.I, V.J))
    return Program([
        *choice(config),
        (R.node(V.I) <= (R.seen(V.I), W["node.bias"][d,])) | [F.relu],
        R.message(V.I, V.J) <= pair(config, "message", R.node(V.I))["message.out":d, d],
        (R.most(V.I) <= R.message(V.I, V.J)) | [F.max_agg],
        (R.state(V.I) <= state) | [F.relu],
        R.out(V.I) <= out,
        (R.share(V.I, V.J) <= pointer["pointer.out":1, d]) | [F.softmax_agg(agg_terms=[V.J])],
    ])  # fmt: skip
