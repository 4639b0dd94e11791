"""BP-Transformer: attention to near tokens and to far spans of a binary tree.

    nodes = tokens, and behind them the spans of a binary tree; a span begins as 0
    scoreᵢⱼ = qᵢ · (kⱼ + r(typeᵢⱼ)) / √d over the edges,  type = level, side and place of j from i
    aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ relu(W₁ aᵢ))   for tokens and spans alike

Paper: https://arxiv.org/abs/1911.04070. Parity: `torch`, by the equations, in
tests/zoo/test_bp_transformer.py.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.bp_transformer.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, k=2, clip=3
... )
>>> model = zoo.bp_transformer.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9)), edge=config.edges(9)).shape
torch.Size([9, 50])
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from edgewise.graphs import binary_partition
from edgewise.graphs.checks import integer
from edgewise.inputs.kinds import rows
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Function
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, dropped, head_size, heads


@dataclass(frozen=True)
class Config(block.Block):
    """A node attends to `k` nodes per level and side; levels above `clip` share their types."""

    vocabulary: int = 10_000
    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 12
    k: int = 64
    clip: int = 6
    causal: bool = True
    eps: float = 1e-5
    dropout: float = 0.1
    activation: Function = F.relu

    OWN: ClassVar = {"norm": "post", "positions": "relative"}
    FITS: ClassVar = {"positions": ("relative", "none")}
    NO_GRAPH: ClassVar = "its graph is the relation `edge(i, j, type)`: see `Config.edges`"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.k, "k", 1)
        integer(self.clip, "clip")

    @property
    def types(self) -> int:
        return (2 * self.k + 1) * (self.clip + 1)

    def edges(self, tokens: int) -> rows:
        """What `edge(i, j, type)` is for a text of this many tokens.

        >>> Config(k=1, clip=1, causal=False).edges(2).keys.T.tolist()
        [[0, 0, 2], [0, 1, 0], [1, 0, 1], [1, 1, 2], [2, 0, 5], [2, 1, 5]]
        """
        graph = binary_partition(self.k, tokens=tokens, causal=self.causal, clip=self.clip)
        return rows(torch.cat([graph.edges(graph.nodes), graph.edge_types()[None]]))


def attention(x: Atom, y: Atom, config: Config, edges: Edges) -> Statements:
    """Attention along edges; the vector of an edge's type is added to its key, in all heads."""
    size, h, placed = config.size, V.H, config.positions == "relative"
    d = head_size(size, config.heads)
    values, value = heads(x, R.v, size, d), R.v(h, V.J)
    if config.aggregation != "softmax":
        return [*values, *layers.attend(x, y, value, (), config, edges)]
    query = layers.scaled(R.q(h, V.I), layers.factor(config, d))
    typed = R.type(V.T).T, query, R._edge(V.I, V.J, V.T)
    terms: tuple[Expression, ...] = (R.k(h, V.J).T @ query,)
    terms += (R.to_type(h, V.I, V.J),) if placed else ()
    made: Statements = [
        R.type(V.T) <= W.type(V.T)[d,],
        (R.to_type(h, V.I, V.J) <= typed) | [F.product],
    ]
    return [
        *heads(x, R.q, size, d),
        *heads(x, R.k, size, d),
        *values,
        *(made if placed else []),
        *layers.attend(x, y, value, terms, config, edges),
    ]


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    return layers.layer(
        x, lambda read: attention(read, R.heads, config, edges), config, p=config.dropout
    )


def program(config: Config) -> Program:
    """Reads `token(i)` and `edge(i, j, type)`, which `config.edges(tokens)` lists.

    Derives `logits(i)`, and `out(i)` for tokens and spans, the last of them the span of all: as
    spans lie beyond the axis of the tokens, call `model.rows(...)`.
    """
    word = F.lookup(W.word[config.vocabulary, config.size], R.token(V.I))
    nothing = W.nothing[config.size,].filled(0.0).fixed()
    typed = config.positions == "relative"  # the types of edges are those of their places
    own = () if typed else (R._linked(V.I, V.J),)
    edges = block.edges(config, config.layers, own=own)
    stack, (last,) = block.stacked(lambda pairs: lambda x: layer(x, config, pairs), edges, R.x)
    rules: Statements = [
        R.x(V.I) <= dropped(word, config.dropout),
        R.x(V.I) <= (nothing, R._edge(V.I, V.J, V.T), ~R._token(V.I)),
        *([] if typed else [R.linked(V.I, V.J) <= R._edge(V.I, V.J, V.T)]),
        *stack,
        *layers.ended(last, R.out, config),
        R.logits(V.I) <= (R.out(V.I)["word" : config.vocabulary, config.size], R._token(V.I)),
    ]
    return Program(rules, domains={V.H: config.heads} | ({V.T: config.types} if typed else {}))
